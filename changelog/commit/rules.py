"""The rules of the commit protocol that the model check switches off, one by one, to show that each is needed.

Product code always uses `ALL_RULES`; nothing outside `tests/` may build another value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ProtocolRules:
    """The rules of `docs/internals/commit-protocol.md` that are in force."""

    list_after_claim: bool = True
    """START 3: after winning a fence, LIST again. Off: a fence written into the hole of a collected commit owns."""
    keep_fences: bool = True
    """GC 3: a fence is never deleted. Off: a stalled driver finds its next slot free again."""
    rewind_check: bool = True
    """BASE: Spark behind the chain is an error. Off: an old batch is executed on newer state."""


ALL_RULES: Final = ProtocolRules()
