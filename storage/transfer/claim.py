"""Claiming a name: put-if-absent whose outcome is always known (design 7a, PUT-IF-ABSENT).

A client, a proxy or the HTTP library may send a write twice, so "it exists already" can mean "you wrote it", and a
lost reply means nothing at all. Every body carries a token that only its writer knows; reading back settles it:

* my token: won;
* nothing there: the same bytes are sent again;
* another body: lost, which is a value and not an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from varvite.storage.errors import (
    DidNotHappenError,
    InvalidRequestError,
    MayHaveHappenedError,
    MissingObjectError,
    RetryableError,
)
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.prepared_object import Preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

_Answer = TypeVar("_Answer")

CLAIM_BACKOFF: Final = Backoff(attempts=6, initial_s=0.05, maximum_s=2.0)
"""Six tries within about 1.6 s of pauses; the store's own timeouts come on top."""


@dataclass(frozen=True)
class Claim:
    """The outcome of a claim."""

    won: bool
    body: bytes | None
    """The other writer's body if the claim was lost, None if it was won."""


def claim(
    store: ObjectStore, name: str, body: bytes, token: str, clock: Clock, backoff: Backoff = CLAIM_BACKOFF
) -> Claim:
    """Create `name` with `body` unless it exists; who did is settled by reading back.

    Args:
        store: Where.
        name: The name to claim.
        body: What to store; it must carry `token` verbatim.
        token: Known to this writer only, and fresh for every new body.
        clock: Makes the pauses.
        backoff: How often to try.

    Raises:
        DidNotHappenError: Every try failed without effect.
        MayHaveHappenedError: The storage gave no answer that settles it: `name` may or may not hold `body` now.
        InvalidRequestError: The body lacks the token, or the store refuses the call.
    """
    return ClaimRequest(store, name, body, token).settle(clock, backoff)


class ClaimRequest:
    """What a claim sends, by one thread or by several: all send the same bytes with the same token."""

    def __init__(self, store: ObjectStore, name: str, body: bytes, token: str) -> None:
        """As for `claim`; nothing is sent yet. Raises `InvalidRequestError` if the body lacks the token."""
        self.name = name
        self.answers = 0
        """How often the storage has answered, if only with a failure."""
        self._store = store
        self._mark = token.encode()
        if not self._mark or self._mark not in body:
            raise InvalidRequestError("the body to claim a name with must carry its token", object_name=name)
        self._object = Preparation(store, name, body)
        self._is_over = False

    def end(self) -> None:
        """It is settled, or given up: whoever still settles it sends nothing more, but for what is under way."""
        self._is_over = True

    def settle(self, clock: Clock, backoff: Backoff) -> Claim:
        """Send until the outcome is known. Errors as `claim`."""
        unclear = False
        last: RetryableError | None = None
        for pause_s in backoff.pauses():
            if pause_s:
                clock.sleep(pause_s)
            if self._is_over:
                break
            try:
                if self._answered(lambda: self._object.ready().put_if_absent()):
                    return Claim(won=True, body=None)
            except DidNotHappenError as error:
                last = error
                continue
            except MayHaveHappenedError as error:
                last = error
            unclear = True  # also after a plain refusal: it may have met this claim's own object
            try:
                return self._judged(self._answered(lambda: self._store.get(self.name)))
            except MissingObjectError:
                continue
            except RetryableError as error:
                last = error
        raise self._unsettled(backoff, last, unclear=unclear)

    def _answered(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        finally:
            self.answers += 1

    def _judged(self, found: bytes) -> Claim:
        return Claim(won=True, body=None) if self._mark in found else Claim(won=False, body=found)

    def _unsettled(self, backoff: Backoff, last: RetryableError | None, *, unclear: bool) -> RetryableError:
        what = f"{backoff.attempts} tries to create the object gave no clear answer"
        error: RetryableError
        if unclear or last is None:
            error = MayHaveHappenedError(f"{what}; read it back before going on ({last})", object_name=self.name)
        else:
            error = DidNotHappenError(f"{what} and had no effect; try again ({last})", object_name=self.name)
        error.__cause__ = last
        return error
