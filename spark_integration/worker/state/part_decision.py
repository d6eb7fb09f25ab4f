"""Decides when a part of a batch's changes is cut and uploaded while the function goes on; pure.

Nothing here affects what the state is, only in how many pieces it travels. So estimates will do: the size of
the changes is known only when they are encoded, and is learnt from what the operator encoded last on this worker.

Invariants: I10 (the parts of an attempt, each of which is a reference in the chain, grow with the logarithm of its
changes; what the counting costs is bounded by what the changes cost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

COUNTS_PER_PART: Final = 4
"""Counts of the pending rows, about, before a part is full."""
PARTS_PER_DOUBLING: Final = 32
"""Parts of one attempt after which parts become twice as large, and so on."""
LEARNT_ROWS_MIN: Final = 1_000
"""A segment of fewer rows says little of the next: it is mostly header."""


@dataclass(frozen=True, slots=True)
class ChangeSizes:
    """Measured sizes of an operator's changes; until then a guess, rather too large than too small."""

    row_bytes: float = 100.0
    """Encoded bytes per row of changes."""
    input_ratio: float = 1.0
    """Encoded bytes of changes per byte of input."""

    def learnt(self, rows: int, encoded_bytes: int, input_bytes: int) -> ChangeSizes:
        """The sizes after `rows` changes of `input_bytes` of input were encoded."""
        if rows < LEARNT_ROWS_MIN:
            return self
        return ChangeSizes(encoded_bytes / rows, encoded_bytes / max(1, input_bytes))


@dataclass(frozen=True, slots=True)
class GrowingPart:
    """The changes of an attempt since its last cut."""

    threshold_bytes: int
    """Size of a part, encoded, of the first parts."""
    parts: int = 0
    """Parts that were cut before."""
    input_bytes: int = 0
    """Input since the last cut."""
    counted_bytes: int = 0
    """The part of `input_bytes` that had come when the rows were last counted."""

    @property
    def target_bytes(self) -> int:
        """Size at which this part is full."""
        return self.threshold_bytes << (self.parts // PARTS_PER_DOUBLING)

    def after_input(self, size_bytes: int) -> GrowingPart:
        """So much more input was processed."""
        return replace(self, input_bytes=self.input_bytes + size_bytes)

    def is_count_due(self, sizes: ChangeSizes) -> bool:
        """Has so much input come that counting the pending rows may find the part full?

        Counting visits every pending key, so it must not happen for each input batch. Changes go with input: by the
        ratio that was learnt, and not above the input for functions that change the same keys again and again.
        """
        growth_bytes = (self.input_bytes - self.counted_bytes) * max(1.0, sizes.input_ratio)
        return growth_bytes * COUNTS_PER_PART >= self.target_bytes

    def after_count(self) -> GrowingPart:
        """The rows were counted, and were too few."""
        return replace(self, counted_bytes=self.input_bytes)

    def is_full(self, rows: int, sizes: ChangeSizes) -> bool:
        """Are so many pending rows a part?"""
        return rows > 0 and rows * sizes.row_bytes >= self.target_bytes

    def after_cut(self) -> GrowingPart:
        """The part was cut: the next one."""
        return GrowingPart(self.threshold_bytes, self.parts + 1)
