"""Batches as replay hands them to a store, several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.storage.format.records import Link


class Batch(NamedTuple):
    """The net effect of one batch, or a part of it."""

    changes: Sequence[StateChanges]
    seq: int
    """Of the commit that it leads to; orders list elements."""
    accepts: Callable[[int], bool] | None = None
    """Rows of key groups that it refuses are skipped; None accepts all."""
    positions: dict[str, int] | None = None
    """Name of a list state → its rows of this batch so far. Parts of one batch that come separately share one dict, or
    their elements would meet at the same keys; None for a whole batch."""

    def consists_of(self, changes: Sequence[StateChanges], seq: int) -> bool:
        """Whether it is a whole batch of just these changes; they are immutable, so identity tells."""
        if self.accepts is not None or self.seq != seq or len(self.changes) != len(changes):
            return False
        return all(mine is other for mine, other in zip(self.changes, changes, strict=True))


class BatchFolder(Protocol):
    """What replay needs of a store: many batches cost less together than one by one, and only the end has a version."""

    @property
    def keeps_wire_forms(self) -> bool:
        """Whether `fold` does nothing with values but to encode them (`TypeInformation.wire_ready`)."""
        ...

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        """Fold batches on the way to `version`, all of these or none.

        Args:
            batches: In replay order for each key group; different key groups may be at different seqs.
            version: The commit that the whole sequence of folds leads to.
            last: This is the last fold. Before it the store has no version, and a crash leaves it useless.
        """
        ...


class BatchTime(NamedTuple):
    """The time of a batch, or of the state after a commit. Neither part ever goes back from batch to batch."""

    time_ms: int
    """Processing time: the entry's, the same for every row of the batch."""
    watermark_ms: int | None = None
    """Event time that the stream has reached; None before there is a watermark."""


class CurrentRow(Protocol):
    """The row that is being processed."""

    @property
    def element_timestamp(self) -> int | None:
        """Its event time, milliseconds since the epoch; None if it has none."""
        ...
