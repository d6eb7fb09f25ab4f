"""When a job's garbage is collected: a pure decision over what the newest commit's bases were and are.

Every interval, and earlier if much has become garbage: a base that was replaced is as large as the state of its range,
so that until the next round the storage may hold the state twice.

Invariants: I10 (the space that garbage takes is bounded by the state's, not by how often ranges are folded).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.storage.records import Tile

REPLACED_PART: Final = 0.1
"""Of the bytes of all bases: garbage from which on it is not waited for the interval."""


@dataclass(frozen=True)
class CollectSchedule:
    """What is remembered of one job; times in ms of one monotonic clock."""

    collected_ms: int | None = None
    """When garbage was last collected."""
    sizes: Mapping[Tile, int] = field(default_factory=dict["Tile", int])
    """Stored bytes of the bases that there are."""
    replaced: tuple[tuple[int, int], ...] = ()
    """Bases that were replaced and are still there: (seq of the commit that was then the newest, bytes)."""
    keep_from: int = 0
    """The chain's: entries from there on are kept, and the bases that they name."""

    def seen(self, newest_seq: int, keep_from: int, sizes: Mapping[Tile, int]) -> CollectSchedule:
        """The newest commit has these bases."""
        gone_bytes = sum(size for tile, size in self.sizes.items() if tile not in sizes)
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
        return garbage_bytes > 0 and garbage_bytes >= REPLACED_PART * sum(self.sizes.values())

    def _is_garbage(self, replaced: tuple[int, int]) -> bool:
        return replaced[0] <= self.keep_from
