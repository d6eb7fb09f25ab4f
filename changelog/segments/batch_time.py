"""What time it is in a batch; the only clock that state knows (I5)."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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
