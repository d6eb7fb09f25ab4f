"""The policy of retries: how many, and the pauses between them. Pure: without clock and randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Backoff:
    """At most `attempts` attempts, with pauses that double from `initial_s` up to `maximum_s`."""

    attempts: int = 6
    """All attempts, at least 1."""
    initial_s: float = 0.05
    """Pause after the first attempt."""
    maximum_s: float = 2.0
    """Longest pause between two attempts."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.initial_s < 0 or self.maximum_s < self.initial_s:
            raise InvalidRequestError(f"{self} is not a backoff: need attempts >= 1, 0 <= initial_s <= maximum_s")

    def pause_s(self, failures: int) -> float:
        """The pause after this number of failed attempts (1 or more)."""
        # The exponent is capped so that a large attempt count cannot overflow a float.
        return min(self.maximum_s, self.initial_s * 2.0 ** min(failures - 1, 60))

    def pauses(self) -> Iterator[float]:
        """The pause before each attempt: 0, `pause_s(1)`, `pause_s(2)`, ..."""
        yield 0.0
        for failures in range(1, self.attempts):
            yield self.pause_s(failures)
