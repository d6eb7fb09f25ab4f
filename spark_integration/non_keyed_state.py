"""The non-keyed state of one operator in its state worker: what is confirmed, and the backend over it.

Invariants: I4 (only `confirm` changes what is confirmed; `drop` leaves a backend's changes behind).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.changelog.operator_state_backend import OperatorStateBackend
from varve.storage.records import ORIGIN

if TYPE_CHECKING:
    from varve.changelog.state_section import StateSection
    from varve.storage.records import Link


class NonKeyedState:
    """See the module. Used by one thread."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._sections: tuple[StateSection, ...] = ()
        self._at = ORIGIN
        self._backend: OperatorStateBackend | None = None

    @property
    def backend(self) -> OperatorStateBackend:
        """The state as the function sees it."""
        if self._backend is None:
            self._backend = OperatorStateBackend(self._operator, self._sections)
        return self._backend

    def confirm(self, sections: tuple[StateSection, ...], at: Link) -> None:
        """The batch whose end these sections are has become commit `at`."""
        self._sections, self._at = sections, at

    def drop(self) -> None:
        """The function and its handles are thrown away."""
        self._backend = None
