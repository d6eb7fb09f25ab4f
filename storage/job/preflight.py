"""The check of a storage before a job depends on it, made on the storage itself.

Some S3 clones overwrite in a conditional write, or check first and write then: two drivers would both own the chain
(I6). A lifecycle rule of the bucket may delete the chain later.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    InvalidRequestError,
    MissingObjectError,
    RetryableError,
    VarviteError,
)
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.remote.bucket.remarks import Level, remarks_on
from varvite.storage.object_stores.remote.protocols import PROTOCOLS
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.object_stores.remote.bucket.remarks import Remark

_log: Final = logging.getLogger(__name__)
PREFLIGHT: Final = "preflight/"
"""The prefix of the check's objects below the root; objects of a killed check may be deleted at any time."""
_BACKOFF: Final = Backoff(attempts=3, initial_s=0.1, maximum_s=1.0)
"""The attempts of each claim; few, because somebody waits for the check."""
_RACERS: Final = 4
"""Threads that try to create the same object at once."""


def check_store(store: ObjectStore, tokens: TokenSource, clock: Clock) -> None:
    """Write, read, list and delete small objects; try to create one twice, and another from several threads at once.

    Raises:
        InvalidRequestError: The storage cannot carry a job: it overwrites in put-if-absent, does not list or delete
            correctly, cannot be written, or refuses credentials, bucket, clock or permission. The message says which.
        DidNotHappenError: The storage does not answer, or is full; only the check's own objects were touched.
    """
    try:
        _check(store, tokens, clock)
    except RetryableError as error:
        raise DidNotHappenError(
            f"{store.url} did not answer the check before the start as it should, and nothing was started; correct the "
            f"location and its endpoint_url, or start again when the storage answers ({error.message})"
        ) from error


def bucket_remarks(store: ObjectStore, prefix: str = "") -> list[Remark]:
    """Everything that the settings of a store's bucket mean for jobs, the worst first, as far as the rights go.

    Args:
        store: The store; one without such settings has no remarks.
        prefix: The names of the objects in question begin with it.
    """
    scheme = store.url.partition("://")[0]
    if scheme not in {*chain.from_iterable(PROTOCOLS)}:
        return []
    # Imported here: a job with a local store needs neither fsspec nor what it loads.
    from varvite.storage.object_stores.remote.bucket.readers import read_settings

    settings = read_settings(f"{store.url.rstrip('/')}/{prefix}", getattr(store, "storage_options", {}))
    return [] if settings is None else remarks_on(settings)


def check_bucket(store: ObjectStore, prefix: str) -> None:
    """Log what is worth saying on a store's bucket.

    Raises `InvalidRequestError` if its settings would delete the state of a job, or let it fail.
    """
    remarks = bucket_remarks(store, prefix)
    for remark in remarks:
        _log.log(logging.INFO if remark.level is Level.FACT else logging.WARNING, "storage: %s", remark.text)
    dangers = [remark.text for remark in remarks if remark.level is Level.DANGER]
    if dangers:
        raise InvalidRequestError(f"no job is started there, because {'; and '.join(dangers)}")


def _check(store: ObjectStore, tokens: TokenSource, clock: Clock) -> None:
    first, second = tokens.token(), tokens.token()
    name, raced = PREFLIGHT + first, PREFLIGHT + second
    store.list(name)  # a storage that hangs costs the timeouts of one call, not those of a claim
    try:
        _check_exclusive(store, name, first, second, clock)
        _check_read(store, name, first)
        _check_list(store, name)
        _check_race(store, raced, [tokens.token() for _ in range(_RACERS)], clock)
    except VarviteError:
        with suppress(VarviteError):
            store.delete([name, raced])
        raise
    _check_delete(store, [name, raced])


def _refused(store: ObjectStore, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{store.url} {what}; a job's state would not be safe there, choose another storage")


def _check_exclusive(store: ObjectStore, name: str, first: str, second: str, clock: Clock) -> None:
    if not claim(store, name, first.encode(), first, clock, _BACKOFF).won:
        raise _refused(store, "says that a new random name exists already")
    outcome = claim(store, name, second.encode(), second, clock, _BACKOFF)
    if outcome.won:
        raise _refused(store, "overwrites an existing object although told not to (If-None-Match is ignored)")
    if outcome.body != first.encode():
        raise _refused(store, f"returned {outcome.body!r} for an object that was written as {first!r}")


def _check_read(store: ObjectStore, name: str, body: str) -> None:
    try:
        data = store.get_range(name, 8, 16)
    except CorruptDataError as error:  # too few bytes, or no object any more
        raise _refused(store, f"does not return a range of what was just written ({error.message})") from error
    if data != body.encode()[8:24]:
        raise _refused(store, "returned wrong bytes for a range")


def _check_list(store: ObjectStore, name: str) -> None:
    listed = [meta.name for meta in store.list(name)]
    if listed != [name]:
        raise _refused(store, f"does not list what was just written (listed {listed}, not {[name]})")


def _check_race(store: ObjectStore, name: str, tokens: Sequence[str], clock: Clock) -> None:
    """Finds a put-if-absent that is not atomic if it is slow enough; an atomic one always passes."""

    def wins(token: str) -> bool:
        return claim(store, name, token.encode(), token, clock, _BACKOFF).won

    with ThreadPoolExecutor(len(tokens), "varvite-preflight") as racers:
        winners = sum(racers.map(wins, tokens))
    if winners != 1:
        raise _refused(store, f"let {winners} of {len(tokens)} threads create the same object (it is not atomic)")


def _check_delete(store: ObjectStore, names: Sequence[str]) -> None:
    store.delete(names)
    for name in names:
        with suppress(MissingObjectError):
            store.get(name)
            raise _refused(store, "still returns an object that was deleted")
        if store.list(name):
            raise _refused(store, "still lists an object that was deleted")
