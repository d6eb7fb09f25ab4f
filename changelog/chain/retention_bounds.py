"""Retention bounds of a chain, and the rule whether a commit is still complete. Pure.

Invariants: I7 (what a complete commit needs is not deleted; both bounds only rise along the chain).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.storage.format.records import Commit, Entry, Pin


class Retained(NamedTuple):
    """The two numbers of a commit on which its completeness depends."""

    seq: int
    needs_from: int


class RetentionBounds(NamedTuple):
    """The bounds that an entry, and perhaps pins, set to deletion."""

    keep_from: int = 0
    """Objects of lower slots may be deleted."""
    retained_from: int = 0
    """Snapshots may be deleted that only commits of lower seqs need."""

    @property
    def complete_from(self) -> int:
        """No commit of a lower seq is complete: a commit needs only objects of its own slot or of lower ones."""
        return max(self.keep_from, self.retained_from)

    def is_complete(self, commit: Commit | Retained) -> bool:
        """Tell whether everything that a restore of the commit reads is kept."""
        return commit.needs_from >= self.keep_from and commit.seq >= self.retained_from

    def missing(self, commit: Commit) -> str:
        """The reason why a commit is not complete, for an error."""
        if commit.needs_from < self.keep_from:
            return f"it needs objects from seq {commit.needs_from} on, and those below {self.keep_from} may be deleted"
        return f"what only commits below seq {self.retained_from} need may be deleted"

    def down_to(self, seq: int) -> RetentionBounds:
        """The bounds if everything from this seq on is kept as well."""
        return RetentionBounds(min(self.keep_from, seq), min(self.retained_from, seq))


def bounds_of(entry: Entry, pins: Iterable[Pin] = ()) -> RetentionBounds:
    """The bounds that a head sets; pins must have been listed after it was read."""
    bounds = RetentionBounds(entry.keep_from, entry.retained_from)
    for pin in pins:
        bounds = bounds.down_to(pin.needs_from)
    return bounds
