"""The schedule of garbage collection of a job: pure, over the objects that newest commits have named.

Garbage is collected once per interval, and earlier if there is much of it. A replaced base is as large as the state of
its range; entries whose segments a pack has taken up are as large as the pack. Until the next collection the storage
may hold the state or the log twice.

Invariants: I10 (the space of garbage is bounded by the state's, not by how often ranges are folded or packed).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.storage.format.records import SegmentRef, Tile

Named: TypeAlias = "Tile | str"
"""A base, or an object that segments are slices of."""
REPLACED_PART: Final = 0.1
"""Part of the bytes of all bases and segments: with so much garbage, collection does not wait for the interval."""


class Kept(NamedTuple):
    """Lowest slots that the chain keeps."""

    log_from: int = 0
    """Log objects of this slot and later ones are kept."""
    bases_from: int = 0
    """Bases that entries of this seq and later ones name are kept."""


ALL_KEPT: Final = Kept()


class Replaced(NamedTuple):
    """Bytes that the newest commit names no more, but earlier ones do."""

    seq: int
    """The first commit that does not name them."""
    base_bytes: int
    log_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of bases and log together."""
        return self.base_bytes + self.log_bytes

    def left(self, kept: Kept) -> Replaced:
        """The part that is still kept; the rest is garbage."""
        bases, log = self.seq > kept.bases_from, self.seq > kept.log_from
        return Replaced(self.seq, self.base_bytes * bases, self.log_bytes * log)


def log_sizes(segments: Iterable[SegmentRef]) -> dict[Named, int]:
    """Bytes of these segments in each of the objects that hold them."""
    sizes: dict[Named, int] = {}
    for segment in segments:
        name = segment.data.name
        sizes[name] = sizes.get(name, 0) + segment.data.length
    return sizes


@dataclass(frozen=True)
class CollectSchedule:
    """Sizes of one job's objects, and the last collection; times in ms of one monotonic clock."""

    collected_ms: int | None = None
    """Time of the last collection."""
    sizes: Mapping[Named, int] = field(default_factory=dict["Named", int])
    """Stored bytes of the bases and log objects that the newest commit names."""
    replaced: tuple[Replaced, ...] = ()
    """Bytes that it names no more, and that are still stored."""
    kept: Kept = ALL_KEPT
    """Lowest slots that the chain keeps."""

    def seen(
        self, newest_seq: int, full_seq: int, bounds: RetentionBounds, sizes: Mapping[Named, int]
    ) -> CollectSchedule:
        """The schedule after reading a newest commit.

        Args:
            newest_seq: Its seq.
            full_seq: The seq of its full entry.
            bounds: Retention bounds of the chain's head.
            sizes: Stored bytes of the bases and log objects that it names; unknown ones are left out.
        """
        dropped = [(named, size) for named, size in self.sizes.items() if named not in sizes]
        log_bytes = sum(size for named, size in dropped if isinstance(named, str))
        newest = Replaced(newest_seq, sum(size for _, size in dropped) - log_bytes, log_bytes)
        replaced = (*self.replaced, newest) if newest.size_bytes else self.replaced
        # Bases are kept from the full entry on that all retained commits build on, if it is the newest commit's.
        bases_from = full_seq if bounds.retained_from >= full_seq else self.kept.bases_from
        return replace(self, sizes=sizes, replaced=replaced, kept=Kept(bounds.keep_from, bases_from))

    def collected(self, now_ms: int) -> CollectSchedule:
        """The schedule after a collection, or a failed try, at `now_ms`."""
        left = (replaced.left(self.kept) for replaced in self.replaced)
        return replace(self, collected_ms=now_ms, replaced=tuple(part for part in left if part.size_bytes))

    def is_due(self, interval_ms: int, now_ms: int, garbage_min_bytes: int) -> bool:
        """Is the next collection due? Garbage of less than `garbage_min_bytes` waits for the interval."""
        if self.collected_ms is None or now_ms >= self.collected_ms + interval_ms:
            return True
        garbage_bytes = sum(part.size_bytes - part.left(self.kept).size_bytes for part in self.replaced)
        return garbage_bytes >= max(garbage_min_bytes, 1, REPLACED_PART * sum(self.sizes.values()))
