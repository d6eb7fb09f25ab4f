"""Claims of a name: put-if-absent with a known outcome.

A client, a proxy or the HTTP library may send a write twice, so "it exists already" can mean "you wrote it", and a
lost reply says nothing. Every body carries a token that only its writer knows. Reading back settles the claim:

* the own token: won;
* no object: the same bytes are sent again;
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
"""Six attempts with about 1.6 s of pauses; the store's own timeouts come on top."""


@dataclass(frozen=True)
class Claim:
    """The outcome of a claim."""

    won: bool
    body: bytes | None
    """The other writer's body if the claim was lost, None if it was won."""


def claim(
    store: ObjectStore, name: str, body: bytes, token: str, clock: Clock, backoff: Backoff = CLAIM_BACKOFF
) -> Claim:
    """Create `name` with `body` unless it exists; an unclear outcome is settled by reading back.

    Args:
        store: The store of the object.
        name: The name to claim.
        body: The object's bytes; they must contain `token` verbatim.
        token: Known to this writer only, and new for every new body.
        clock: Makes the pauses.
        backoff: The attempts.

    Raises:
        DidNotHappenError: Every attempt failed without effect.
        MayHaveHappenedError: The storage gave no answer that settles it: `name` may or may not hold `body` now.
        InvalidRequestError: The body lacks the token, or the store refuses the call.
    """
    return ClaimRequest(store, name, body, token).settle(clock, backoff)


class ClaimRequest:
    """One claim, which several threads may settle: all send the same bytes with the same token."""

    def __init__(self, store: ObjectStore, name: str, body: bytes, token: str) -> None:
        """Takes the arguments of `claim`; sends nothing. Raises `InvalidRequestError` if the body lacks the token."""
        self.name = name
        self.answers = 0
        """The number of answers from the storage, failures included."""
        self._store = store
        self._mark = token.encode()
        if not self._mark or self._mark not in body:
            raise InvalidRequestError("the body to claim a name with must carry its token", object_name=name)
        self._object = Preparation(store, name, body)
        self._is_over = False

    def end(self) -> None:
        """Stop all threads from sending further requests; those that are under way go on."""
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
                if self._count_answer(lambda: self._object.ready().put_if_absent()):
                    return Claim(won=True, body=None)
            except DidNotHappenError as error:
                last = error
                continue
            except MayHaveHappenedError as error:
                last = error
            unclear = True  # also after a plain refusal: the existing object may be this claim's own
            try:
                return self._outcome(self._count_answer(lambda: self._store.get(self.name)))
            except MissingObjectError:
                continue
            except RetryableError as error:
                last = error
        raise self._unsettled(backoff, last, unclear=unclear)

    def _count_answer(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        finally:
            self.answers += 1

    def _outcome(self, body: bytes) -> Claim:
        return Claim(won=True, body=None) if self._mark in body else Claim(won=False, body=body)

    def _unsettled(self, backoff: Backoff, last: RetryableError | None, *, unclear: bool) -> RetryableError:
        what = f"{backoff.attempts} attempts to create the object gave no clear answer"
        error: RetryableError
        if unclear or last is None:
            why = last or "the storage refused each time, although there is no such object: others are in flight"
            error = MayHaveHappenedError(f"{what}; read it back, or start again ({why})", object_name=self.name)
        else:
            error = DidNotHappenError(f"{what} and had no effect; try again ({last})", object_name=self.name)
        error.__cause__ = last
        return error
