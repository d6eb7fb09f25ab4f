"""How often and how fast to try again: a pure policy, without clock and without randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Backoff:
    """At most `attempts` tries, with pauses that double from `initial_s` up to `maximum_s`."""

    attempts: int = 6
    """Tries in all, at least 1."""
    initial_s: float = 0.05
    """Pause after the first try."""
    maximum_s: float = 2.0
    """Longest pause between two tries."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.initial_s < 0 or self.maximum_s < self.initial_s:
            raise InvalidRequestError(f"{self} is not a backoff: need attempts >= 1, 0 <= initial_s <= maximum_s")

    def pause_s(self, failures: int) -> float:
        """Pause after the given number of failed tries (1 or more)."""
        # The exponent is cut off so that a large attempt count cannot overflow a float.
        return min(self.maximum_s, self.initial_s * 2.0 ** min(failures - 1, 60))

    def pauses(self) -> Iterator[float]:
        """For each try the pause to make before it: 0 first, then `pause_s(1)`, `pause_s(2)`, ..."""
        yield 0.0
        for failures in range(1, self.attempts):
            yield self.pause_s(failures)
