"""Past the page cache or into it: which way the parts of a download are written, from what writes have taken.

Where the host gives a virtual machine its memory page by page, filling fresh pages of the cache takes more CPU than all
else that a restore does (measured: 12 ms for 8 MiB, and 1.7 ms past it). Where the disk is slow, as network volumes
are, the cache takes at once what the disk takes later. Nothing tells which machine this is. So the first parts of a
download go both ways; from then on all go past the cache if that saves most of their CPU and the disk keeps up.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

TRIALS: Final = 2
"""Parts that go each way before one is preferred."""
CPU_RATIO_MIN: Final = 3
"""A part has to take so many times as much CPU through the page cache: later the kernel reads it back, for some CPU."""
DISK_FRACTION_MAX: Final = 0.5
"""Of the time that reading a part from the storage takes. Above it the disk is, or is soon, what all wait for."""


@dataclass(frozen=True, slots=True)
class PartTime:
    """What parts have taken; see `__add__`."""

    parts: int = 0
    size_bytes: int = 0
    read_s: float = 0.0
    """From the storage."""
    write_s: float = 0.0
    write_cpu_s: float = 0.0
    """Of the writing thread."""

    def __add__(self, other: PartTime) -> PartTime:
        return PartTime(
            self.parts + other.parts,
            self.size_bytes + other.size_bytes,
            self.read_s + other.read_s,
            self.write_s + other.write_s,
            self.write_cpu_s + other.write_cpu_s,
        )


def is_direct_next(number: int, direct: PartTime, cached: PartTime) -> bool:
    """Whether a part is to be written past the page cache.

    Args:
        number: Of the part, from 0, in the order in which writes begin.
        direct: The parts that were written past it.
        cached: The others.
    """
    if direct.parts < TRIALS or cached.parts < TRIALS:
        return number % 2 == 1
    keeps_up = direct.write_s <= DISK_FRACTION_MAX * direct.read_s
    saves_cpu = direct.write_cpu_s * CPU_RATIO_MIN * cached.size_bytes <= cached.write_cpu_s * direct.size_bytes
    return keeps_up and saves_cpu


class WriteTimes:
    """Chooses the way of each part of one download; for any number of threads."""

    def __init__(self) -> None:
        self._begun = 0
        self._direct, self._cached = PartTime(), PartTime()
        self._lock = threading.Lock()

    def is_direct_next(self) -> bool:
        """Whether the write that begins now is to go past the page cache."""
        with self._lock:
            number = self._begun
            self._begun += 1
            return is_direct_next(number, self._direct, self._cached)

    def add(self, part: PartTime, *, is_direct: bool) -> None:
        """A part has been written."""
        with self._lock:
            if is_direct:
                self._direct += part
            else:
                self._cached += part
