"""When a job's garbage is collected: a pure decision over what the newest commit's state was and is made of.

Every interval, and earlier if much has become garbage. A base that was replaced is as large as the state of its range;
entries whose segments a pack has taken up are as large as the pack. Until the next round the storage may hold the state
or the log twice.

Invariants: I10 (the space that garbage takes is bounded by the state's, not by how often ranges are folded or packed).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.storage.records import SegmentRef, Tile

Named: TypeAlias = "Tile | str"
"""A base, or an object that segments are slices of."""
REPLACED_PART: Final = 0.1
"""Of the bytes of all bases and segments: garbage from which on it is not waited for the interval."""
GARBAGE_BYTES_MIN: Final = 1 << 18
"""Less is not worth the requests of a round of its own."""


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
    replaced: tuple[tuple[int, int], ...] = ()
    """What it is not made of any more and is still there: (seq of the commit that was then the newest, bytes)."""
    keep_from: int = 0
    """The chain's: entries from there on are kept, and all that they name."""

    def seen(self, newest_seq: int, keep_from: int, sizes: Mapping[Named, int]) -> CollectSchedule:
        """The state of the newest commit is made of this; what is not known yet is left out."""
        gone_bytes = sum(size for named, size in self.sizes.items() if named not in sizes)
        replaced = (*self.replaced, (newest_seq, gone_bytes)) if gone_bytes else self.replaced
        return replace(self, sizes=sizes, replaced=replaced, keep_from=keep_from)

    def collected(self, now_ms: int) -> CollectSchedule:
        """Garbage was collected, or tried to be, at `now_ms`."""
        return replace(self, collected_ms=now_ms, replaced=tuple(r for r in self.replaced if not self._is_garbage(r)))

    def is_due(self, interval_ms: int, now_ms: int) -> bool:
        """Whether it is time."""
        if self.collected_ms is None or now_ms >= self.collected_ms + interval_ms:
            return True
        garbage_bytes = sum(replaced[1] for replaced in self.replaced if self._is_garbage(replaced))
        return garbage_bytes >= max(GARBAGE_BYTES_MIN, REPLACED_PART * sum(self.sizes.values()))

    def _is_garbage(self, replaced: tuple[int, int]) -> bool:
        return replaced[0] <= self.keep_from
