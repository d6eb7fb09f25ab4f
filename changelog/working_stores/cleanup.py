"""What cleaning up has to do with how much a state is used: the bounds of its work (I10)."""

from __future__ import annotations

from typing import NamedTuple


class StateActivity(NamedTuple):
    """What was done to a state since it was last cleaned up."""

    accesses: int = 0
    """Uses of its handles."""
    records: int = 0
    """Rows of the operator, whether they used the state or not."""
    mutations: int = 0
    """Rows of the log."""
