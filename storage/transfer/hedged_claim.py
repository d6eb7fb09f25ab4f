"""Hedged claims: a second request joins one that hangs, and the first clear answer decides.

Every acknowledgement waits for the claim of `chain/<seq>`, and a request that hangs costs the client's read timeout
(20 s on S3). So when it has had no answer for longer than usual, another thread settles the same claim in the same way,
from the put to the reading back. This is safe:

* Both send the same bytes with the same token. Either makes the same entry, and the one that is refused reads the token
  back, as after any put that was sent twice.
* Won: the entry exists. A late request changes nothing, unless the entry has been collected meanwhile. Then a copy
  appears below the head, on no line, and nothing looks for the objects that it names (I7). The next collector deletes
  it, as it does a late copy after a lost reply. The head itself is never deleted.
* Lost: a newer run's fence has the slot, and fences stay (I7): a late request is always refused (I6).
* Neither: the run is over, and its entry exists or not, as after any unclear claim. An error counts only when no other
  request is left that could still settle the claim.
* The caller (`ChainOwner`) checks its ownership again after a slow commit, and measures the time from before the first
  request (docs/internals/commit-protocol.md#commit).

It is not for local file systems: the other request would go to the same disk. And where the directory cannot be synced,
`LocalStore` removes the name again, which a second request may have taken for durable. Nor is it for other filesystems
of fsspec: nothing is known about the content of a name during a slow write of it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.errors import MayHaveHappenedError, RetryableError
from varvite.storage.object_stores.remote.protocols import S3_PROTOCOLS
from varvite.storage.transfer.claim import CLAIM_BACKOFF, ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.backoff import Backoff
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.transfer.claim import Claim

_log: Final = logging.getLogger(__name__)
HEDGE_MIN_S: Final = 0.5
"""The earliest second request: a server's ordinary jitter is over by then, and a batch takes as long."""
HEDGE_MAX_S: Final = 10.0
"""The latest second request, as for an upload: half of S3's read timeout."""
HEDGE_FACTOR: Final = 3.0
HEDGE_PERCENTILE: Final = 0.9
LATENCIES_MAX: Final = 50
"""The number of latest claims whose latency counts."""
HUNG_MAX: Final = 8
"""With this number of hanging requests, of at most 16 MiB each, there are no second requests (I10)."""


def is_hedged(url: str) -> bool:
    """True if claims in the store at this URL get a second request: on S3, where a PUT is atomic."""
    return url.partition("://")[0] in S3_PROTOCOLS


def hedge_after_s(latencies_s: Sequence[float]) -> float:
    """Seconds without an answer after which a claim is joined by a second request.

    It is three times the 90th percentile of the latest claims. A fixed time, as uploads have, would be 200 times too
    long for an entry of some KB, or too short for entries of 10 MiB on a slow line, which would then all be sent twice.
    Only requests that were answered count, so that a storage that often hangs does not lengthen it.

    Args:
        latencies_s: Latencies of the requests that settled the latest claims, in any order.
    """
    if not latencies_s:
        return HEDGE_MAX_S
    usual_s = sorted(latencies_s)[math.ceil(HEDGE_PERCENTILE * len(latencies_s)) - 1]
    return min(max(HEDGE_FACTOR * usual_s, HEDGE_MIN_S), HEDGE_MAX_S)


class _Settled(NamedTuple):
    claim: Claim
    latency_s: float
    """The latency of the request that settled it, from its own beginning."""


class HedgedClaims:
    """The claims of one driver run, one at a time. `close` it."""

    def __init__(self, store: ObjectStore, clock: Clock, backoff: Backoff = CLAIM_BACKOFF) -> None:
        """`backoff` holds for each of the two requests."""
        self._store = store
        self._clock = clock
        self._backoff = backoff
        self._threads = AttemptThreads(2, "varvite-claim")
        self._latencies_s: deque[float] = deque(maxlen=LATENCIES_MAX)

    def claim(self, name: str, body: bytes, token: str) -> Claim:
        """Like `varvite.storage.transfer.claim.claim`; a request that is still under way may have its effect later."""
        request = ClaimRequest(self._store, name, body, token)
        try:
            settled = self._settle(request)
        finally:
            request.end()
        self._latencies_s.append(settled.latency_s)
        return settled.claim

    def close(self) -> None:
        """Start no more requests. Those that hang end by the store's own timeouts and block nothing."""
        self._threads.close()

    def _settle(self, request: ClaimRequest) -> _Settled:
        """Send one or two requests; the first to settle the claim counts. Raises the worst error if none does."""
        running: list[Future[_Settled]] = [self._begin(request)]
        errors: list[BaseException] = []
        try:
            if self._needs_second(request, running):
                running.append(self._begin(request))
            while running:
                wait(running, return_when=FIRST_COMPLETED)
                ended = [future for future in running if future.done()]
                running = [future for future in running if future not in ended]
                failed = {future: error for future in ended if (error := _error_of(future)) is not None}
                settled = [future.result() for future in ended if future not in failed]
                if settled:
                    return min(settled, key=lambda outcome: outcome.claim.won)  # to stop is always safe
                errors += failed.values()
        finally:
            for future in running:
                self._threads.give_up(future)
        raise _worst(errors)

    def _needs_second(self, request: ClaimRequest, running: list[Future[_Settled]]) -> bool:
        """Wait for the first request; True if it is silent. A request that is refused and retried is not."""
        after_s, answers = hedge_after_s(self._latencies_s), 0
        while not wait(running, after_s).done:
            if answers == request.answers and self._threads.lost < HUNG_MAX:
                _log.info("no answer to the claim of %s for %.1f s: it is sent once more", request.name, after_s)
                return True
            answers = request.answers
        return False

    def _begin(self, request: ClaimRequest) -> Future[_Settled]:
        def settle() -> _Settled:
            begin_s = self._clock.monotonic_s()
            outcome = request.settle(self._clock, self._backoff)
            return _Settled(outcome, self._clock.monotonic_s() - begin_s)

        return self._threads.submit(settle)


def _error_of(future: Future[_Settled]) -> BaseException | None:
    if future.cancelled():
        return MayHaveHappenedError("the run was closed while an entry was sent; start a new one")
    return future.exception()


def _worst(errors: Sequence[BaseException]) -> BaseException:
    """An error that a retry cannot cure, or one that leaves the outcome open, or one without effect."""
    permanent = [error for error in errors if not isinstance(error, RetryableError)]
    unclear = [error for error in errors if isinstance(error, MayHaveHappenedError)]
    return [*permanent, *unclear, *errors][0]
