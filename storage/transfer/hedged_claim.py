"""Claims of which one request may hang: a second one joins it, and the first clear answer decides.

The claim of `chain/<seq>` is what every acknowledgement waits for, and a request that hangs costs the client's read
timeout (20 s on S3). So when it has had no answer for longer than usual, another thread settles the same claim in the
same way, from the put to the reading back. Why that is safe:

* Both send the same bytes with the same token. Whichever has its effect makes the same entry, and who is refused reads
  the token back, as after any put that was sent twice.
* Won: the entry is there. A late request finds it, and changes nothing; or it finds nothing, because the entry has been
  collected since. Then a copy appears in a hole below the head, where no line leads and nobody looks for what it names
  (I7): the next collector deletes it, as it does a late copy after a lost reply. The head itself is never deleted.
* Lost: a newer run's fence has the slot, and fences stay (I7): a late request is refused for ever (I6).
* Neither: the run is over, and its entry may be there or not, as after any unclear claim. An error counts only when no
  other request is left that could still settle it.
* The time since which an owner must look again (COMMIT 4) is the caller's (`ChainOwner`): from before the first
  request.

Not on a local file system: the other request would go to the same disk; and where the directory cannot be synced,
`LocalStore` takes the name away again, which a second request may have found and taken for durable. Nor on other
filesystems of fsspec, of which nobody knows what a name holds while a slow write of it is not over.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import MayHaveHappenedError, RetryableError
from varvite.storage.object_stores.remote.s3 import S3_PROTOCOLS
from varvite.storage.transfer.attempt_threads import AttemptThreads
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
"""No second request sooner: a server's ordinary stutter is over by then, and a batch takes as long."""
HEDGE_MAX_S: Final = 10.0
"""A second request after so long in any case, as for an upload: half of S3's read timeout."""
HEDGE_FACTOR: Final = 3.0
HEDGE_PERCENTILE: Final = 0.9
LATENCIES_MAX: Final = 50
"""Claims whose time is remembered."""
HUNG_MAX: Final = 8
"""Requests that may hang at the same time, each with an entry of 16 MiB at most, before no more are doubled (I10)."""


def hedges_claims(url: str) -> bool:
    """Whether claims in the store at this URL are joined by a second request: on S3, where a PUT is one step."""
    return url.partition("://")[0] in S3_PROTOCOLS


def hedge_after_s(latencies_s: Sequence[float]) -> float:
    """Seconds without an answer after which a claim is joined by a second request.

    Three times what nine of ten of the last claims took. A fixed time, as uploads have, would be 200 times too long for
    an entry of some KB, or too short for entries of 10 MiB on a slow line, which would then all be sent twice. It is
    learnt only from the requests that have answered, so that a storage that often hangs does not lengthen it.

    Args:
        latencies_s: Of the requests that have settled the last claims, in any order.
    """
    if not latencies_s:
        return HEDGE_MAX_S
    usual_s = sorted(latencies_s)[math.ceil(HEDGE_PERCENTILE * len(latencies_s)) - 1]
    return min(max(HEDGE_FACTOR * usual_s, HEDGE_MIN_S), HEDGE_MAX_S)


class _Settled(NamedTuple):
    claim: Claim
    latency_s: float
    """Of the request that has settled it, from its own beginning."""


class HedgedClaims:
    """The claims of one driver run, one at a time; see the module. `close` it."""

    def __init__(self, store: ObjectStore, clock: Clock, backoff: Backoff = CLAIM_BACKOFF) -> None:
        """`backoff` is that of each of the two."""
        self._store = store
        self._clock = clock
        self._backoff = backoff
        self._threads = AttemptThreads(2, "varvite-claim")
        self._latencies_s: deque[float] = deque(maxlen=LATENCIES_MAX)

    def claim(self, name: str, body: bytes, token: str) -> Claim:
        """As `varvite.storage.transfer.claim.claim`; a request still under way then may have its effect later."""
        request = ClaimRequest(self._store, name, body, token)
        try:
            settled = self._first(request)
        finally:
            request.end()
        self._latencies_s.append(settled.latency_s)
        return settled.claim

    def close(self) -> None:
        """Requests that hang end by the store's own timeouts, and hold up nobody."""
        self._threads.close()

    def _first(self, request: ClaimRequest) -> _Settled:
        """How the first of them has settled it. Raises what is known if none has."""
        running: list[Future[_Settled]] = [self._begin(request)]
        errors: list[BaseException] = []
        try:
            if self._is_silent(request, running):
                running.append(self._begin(request))
            while running:
                wait(running, return_when=FIRST_COMPLETED)
                ended = [one for one in running if one.done()]
                running = [one for one in running if one not in ended]
                failed = {one: error for one in ended if (error := _error_of(one)) is not None}
                settled = [one.result() for one in ended if one not in failed]
                if settled:
                    return min(settled, key=lambda one: one.claim.won)  # to stop is always safe
                errors += failed.values()
        finally:
            for one in running:
                self._threads.give_up(one)
        raise _most_telling(errors)

    def _is_silent(self, request: ClaimRequest, running: list[Future[_Settled]]) -> bool:
        """Wait for the first request; whether it should be joined by another one. One that is refused does answer."""
        after_s, answers = hedge_after_s(self._latencies_s), 0
        while not wait(running, after_s).done:
            if answers == request.answers and self._threads.lost < HUNG_MAX:
                _log.info("no answer to the claim of %s for %.1f s: it is sent once more", request.name, after_s)
                return True
            answers = request.answers
        return False

    def _begin(self, request: ClaimRequest) -> Future[_Settled]:
        def settle() -> _Settled:
            began_s = self._clock.monotonic_s()
            outcome = request.settle(self._clock, self._backoff)
            return _Settled(outcome, self._clock.monotonic_s() - began_s)

        return self._threads.submit(settle)


def _error_of(one: Future[_Settled]) -> BaseException | None:
    if one.cancelled():
        return MayHaveHappenedError("the run was closed while an entry was sent; start a new one")
    return one.exception()


def _most_telling(errors: Sequence[BaseException]) -> BaseException:
    """What trying again cannot cure, else what leaves the outcome open, else that nothing happened."""
    lasting = [error for error in errors if not isinstance(error, RetryableError)]
    unclear = [error for error in errors if isinstance(error, MayHaveHappenedError)]
    return [*lasting, *unclear, *errors][0]
