"""When a job's garbage is collected: a pure decision over what the newest commit's state was and is made of.

Every interval, and earlier if much has become garbage. A base that was replaced is as large as the state of its range;
entries whose segments a pack has taken up are as large as the pack. Until the next round the storage may hold the state
or the log twice.

Invariants: I10 (the space that garbage takes is bounded by the state's, not by how often ranges are folded or packed).
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
"""Of the bytes of all bases and segments: garbage from which on it is not waited for the interval."""
GARBAGE_BYTES_MIN: Final = 1 << 20
"""Less is not worth the requests of a round of its own."""


class Kept(NamedTuple):
    """From where on the chain keeps things."""

    log_from: int = 0
    """Objects of these slots."""
    bases_from: int = 0
    """The bases that these entries name."""


ALL_KEPT: Final = Kept()


class Replaced(NamedTuple):
    """What the newest commit's state was made of until then, in bytes."""

    seq: int
    """Of the commit that was then the newest."""
    base_bytes: int
    log_bytes: int

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return self.base_bytes + self.log_bytes

    def left(self, kept: Kept) -> Replaced:
        """What of it is kept; the rest is garbage."""
        bases, log = self.seq > kept.bases_from, self.seq > kept.log_from
        return Replaced(self.seq, self.base_bytes * bases, self.log_bytes * log)


def log_sizes(segments: Iterable[SegmentRef]) -> dict[Named, int]:
    """Bytes of these segments in each of the objects that hold them."""
    found: dict[Named, int] = {}
    for segment in segments:
        name = segment.data.name
        found[name] = found.get(name, 0) + segment.data.length
    return found


@dataclass(frozen=True)
class CollectSchedule:
    """What is remembered of one job; times in ms of one monotonic clock."""

    collected_ms: int | None = None
    """When garbage was last collected."""
    sizes: Mapping[Named, int] = field(default_factory=dict["Named", int])
    """Stored bytes of all that the newest commit's state is made of."""
    replaced: tuple[Replaced, ...] = ()
    """What it is not made of any more and is still there."""
    kept: Kept = ALL_KEPT
    """By the chain."""

    def seen(self, newest_seq: int, full_seq: int, cut: RetentionBounds, sizes: Mapping[Named, int]) -> CollectSchedule:
        """The newest commit, of that seq and full entry, is made of this; what is not known yet is left out."""
        gone = [(named, size) for named, size in self.sizes.items() if named not in sizes]
        log_bytes = sum(size for named, size in gone if isinstance(named, str))
        found = Replaced(newest_seq, sum(size for _, size in gone) - log_bytes, log_bytes)
        replaced = (*self.replaced, found) if found.size_bytes else self.replaced
        # From the full entry on that all retained commits build on, if it is that of the newest one.
        bases_from = full_seq if cut.retained_from >= full_seq else self.kept.bases_from
        return replace(self, sizes=sizes, replaced=replaced, kept=Kept(cut.keep_from, bases_from))

    def collected(self, now_ms: int) -> CollectSchedule:
        """Garbage was collected, or tried to be, at `now_ms`."""
        left = (one.left(self.kept) for one in self.replaced)
        replaced = tuple(one for one in left if one.size_bytes)
        return replace(self, collected_ms=now_ms, replaced=replaced)

    def is_due(self, interval_ms: int, now_ms: int) -> bool:
        """Whether it is time."""
        if self.collected_ms is None or now_ms >= self.collected_ms + interval_ms:
            return True
        garbage_bytes = sum(one.size_bytes - one.left(self.kept).size_bytes for one in self.replaced)
        return garbage_bytes >= max(GARBAGE_BYTES_MIN, REPLACED_PART * sum(self.sizes.values()))
