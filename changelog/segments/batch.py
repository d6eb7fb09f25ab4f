"""Batches in the form in which replay passes them to a store, several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.storage.format.records import Link


class Batch(NamedTuple):
    """The net effect of one batch, or a piece of it."""

    changes: Sequence[StateChanges]
    seq: int
    """Seq of the commit that it leads to; orders list elements."""
    accepts: Callable[[int], bool] | None = None
    """Rows of key groups that it refuses are skipped; None accepts all."""
    positions: dict[str, int] | None = None
    """Name of a list state → number of its rows of this batch until now; None for a whole batch. Pieces of one batch
    share one dict, or their elements would get the same positions."""

    def consists_of(self, changes: Sequence[StateChanges], seq: int) -> bool:
        """Tell whether it is a whole batch of exactly these changes; they are immutable, so identity is compared."""
        if self.accepts is not None or self.seq != seq or len(self.changes) != len(changes):
            return False
        return all(mine is other for mine, other in zip(self.changes, changes, strict=True))


class BatchFolder(Protocol):
    """The part of a store that replay uses: many batches cost less together, and only the end has a version."""

    @property
    def keeps_wire_forms(self) -> bool:
        """True if `fold` only encodes values (`TypeInformation.wire_ready`)."""
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
    """The time of a batch, or of the state after a commit. Neither field ever goes back from batch to batch."""

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
