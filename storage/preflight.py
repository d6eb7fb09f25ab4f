"""Is this storage good enough for a job? Proved on the storage itself, before anything depends on it.

Some S3 clones answer a conditional write with success and overwrite: two drivers would both own the chain (I6).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from varve.storage.claim import claim
from varve.storage.errors import InvalidRequestError, MissingObjectError, VarveError

if TYPE_CHECKING:
    from varve.storage.clock import Clock, TokenSource
    from varve.storage.object_store import ObjectStore

PREFLIGHT: Final = "preflight/"
"""Where the check writes, under the store's root; what a killed check leaves there may be deleted at any time."""


def check_store(store: ObjectStore, tokens: TokenSource, clock: Clock) -> None:
    """Write, read, list and delete one small object, and try to create it twice.

    Raises:
        InvalidRequestError: The storage cannot carry a job: it overwrites in put-if-absent, does not list or delete
            what was written, or refuses credentials, bucket or permission. The message says which.
        RetryableError: The storage did not answer.
    """
    first, second = tokens.token(), tokens.token()
    name = PREFLIGHT + first
    try:
        _check_exclusive(store, name, first, second, clock)
        _check_read(store, name, first)
        _check_list(store, name)
    except VarveError:
        with suppress(VarveError):
            store.delete([name])
        raise
    _check_delete(store, name)


def _refused(store: ObjectStore, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{store.url} {what}; a job's state would not be safe there, choose another storage")


def _check_exclusive(store: ObjectStore, name: str, first: str, second: str, clock: Clock) -> None:
    if not claim(store, name, first.encode(), first, clock).won:
        raise _refused(store, "says that a new random name exists already")
    outcome = claim(store, name, second.encode(), second, clock)
    if outcome.won:
        raise _refused(store, "overwrites an existing object although told not to (If-None-Match is ignored)")
    if outcome.body != first.encode():
        raise _refused(store, f"returned {outcome.body!r} for an object that was written as {first!r}")


def _check_read(store: ObjectStore, name: str, body: str) -> None:
    if store.get_range(name, 8, 16) != body.encode()[8:24]:
        raise _refused(store, "returned wrong bytes for a range")


def _check_list(store: ObjectStore, name: str) -> None:
    found = [meta.name for meta in store.list(name)]
    if found != [name]:
        raise _refused(store, f"does not list what was just written (listed {found}, not {[name]})")


def _check_delete(store: ObjectStore, name: str) -> None:
    store.delete([name])
    with suppress(MissingObjectError):
        store.get(name)
        raise _refused(store, "still returns an object that was deleted")
    if store.list(name):
        raise _refused(store, "still lists an object that was deleted")
