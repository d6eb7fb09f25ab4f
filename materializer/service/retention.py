"""Retention by time: checkpoints newer than a period stay complete, besides those that the job retains by number.

A materializer pins a checkpoint now and then, and releases the pins that are older than the retention. No collector
deletes what a pin keeps, which is its checkpoint and everything after it. A pin is old when it is by two clocks: by the
times of the checkpoints, which never go back but are ahead for good once a driver's clock was, and by the time at which
a materializer made it. So no single clock shortens the retention; a lost pin does. Several materializers may do
this side by side: the holder's name marks the pins of all of them. A materializer without a retention, such as a
`--once` by hand, leaves them alone; a retention of 0 releases them.

Invariants: I7 (pins are made by the rule of `varvite.changelog.retention.pins`), I10 (about `STEPS` pins per job).
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.retention.pins import create_pin, list_pins, release_pin
from varvite.storage.errors import CorruptDataError, DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.chain.reader import ChainReader
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, Pin

HOLDER: Final = "retention by time"
STEPS: Final = 8
"""Pins within one retention: up to an eighth more than the period is kept."""


class HeldPin(NamedTuple):
    """A pin of the retention."""

    pin: Pin
    time_ms: int
    """Time of its checkpoint; 0 if the checkpoint is gone."""


class RetentionPlan(NamedTuple):
    """Pins to create and to release."""

    create: bool
    """Pin the newest checkpoint."""
    release: tuple[Pin, ...]


def plan_retention(newest: Commit, held: Sequence[HeldPin], retention_ms: int, now_ms: int) -> RetentionPlan:
    """Decide on the pins of the retention.

    Args:
        newest: The newest checkpoint.
        held: All pins of the retention.
        retention_ms: Time for which checkpoints stay complete; 0: no retention, so no pins.
        now_ms: Time of the clock by which pins are made.
    """
    if retention_ms == 0:
        return RetentionPlan(False, tuple(item.pin for item in held))
    ordered = sorted(held, key=lambda item: (item.pin.commit.seq, item.time_ms, item.pin.token))
    # The newest pin before the period keeps its beginning; older pins keep more than the period.
    before = [item.pin for item in takewhile(lambda item: _is_old(item, newest, now_ms, retention_ms), ordered)]
    is_pinned = bool(ordered) and ordered[-1].pin.commit.seq >= newest.seq
    step_ms = max(1, retention_ms // STEPS)
    create = not is_pinned and (not ordered or max(_ages_ms(ordered[-1], newest, now_ms)) >= step_ms)
    return RetentionPlan(create, tuple(before[:-1]))


def _is_old(item: HeldPin, newest: Commit, now_ms: int, retention_ms: int) -> bool:
    """Is the pin before the period by both clocks?

    If its checkpoint is of a time far ahead, the times of the checkpoints stand still since then, and do not count.
    """
    by_checkpoints, by_clock = _ages_ms(item, newest, now_ms)
    stands_still = item.time_ms - item.pin.created_ms > retention_ms
    return by_clock >= retention_ms and (stands_still or by_checkpoints >= retention_ms)


def _ages_ms(item: HeldPin, newest: Commit, now_ms: int) -> tuple[int, int]:
    """The age of a pin by the times of checkpoints, and by the time at which it was made.

    A pin from the future was made by a clock that was wrong: only the other age counts.
    """
    by_checkpoints, by_clock = newest.time_ms - item.time_ms, now_ms - item.pin.created_ms
    return by_checkpoints, by_checkpoints if by_clock < 0 else by_clock


class Retention:
    """Keeps a job's pins; for one thread at a time."""

    def __init__(self, reader: ChainReader, retention_ms: int | None, clock: Clock, tokens: TokenSource) -> None:
        """`retention_ms`: None leaves the pins as they are, since another materializer may keep them."""
        self._reader = reader
        self._retention_ms = retention_ms
        self._clock = clock
        self._tokens = tokens
        self._times: dict[str, int] = {}

    def keep(self, newest: Commit) -> None:
        """Create and release the pins that are due. Errors are those of `create_pin` and `list_pins`.

        After `DidNotHappenError` only the new pin is missing: the others still exist.
        """
        if self._retention_ms is None:
            return
        held = [HeldPin(pin, self._time_ms(pin)) for pin in list_pins(self._reader) if pin.holder == HOLDER]
        self._times = {item.pin.token: item.time_ms for item in held}
        plan = plan_retention(newest, held, self._retention_ms, self._clock.now_ms())
        if plan.create:
            try:
                self._create(newest)
            except DidNotHappenError:
                overtaking = self._reader.newest()  # the chain may have been read long ago, before the folds
                if overtaking is None or overtaking.link == newest.link:
                    raise
                self._create(overtaking)
        for pin in plan.release:
            release_pin(self._reader, pin, self._clock)

    def _create(self, commit: Commit) -> None:
        pin = create_pin(self._reader, commit, HOLDER, self._clock, self._tokens, for_others=True)
        self._times[pin.token] = commit.time_ms

    def _time_ms(self, pin: Pin) -> int:
        if pin.token in self._times:
            return self._times[pin.token]
        try:
            return self._reader.read_commit(pin.commit).commit.time_ms
        except CorruptDataError:
            return 0
