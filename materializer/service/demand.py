"""Materialization on demand: the object `requests/newest` is a request (docs/reference/formats/requests.md).

Each materializer serves a request once: all its ranges become due. A materializer that starts while the request is new
serves it again, which is harmless: only the time of a materialization depends on a request. The object stays; the next
request replaces it. Finding none is one GET, the cheapest request there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.frame import decode_json, frame, unframe

if TYPE_CHECKING:
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.object_stores.contract import ObjectStore

LOOK_MS: Final = 5_000
"""Time between two polls for requests: each costs a GET."""
NEW_MS: Final = 60_000
"""Age, by wall clocks, up to which a materializer that starts serves a request."""
_KIND: Final = b"MREQ"
_VERSION: Final = 2


class Request(msgspec.Struct, frozen=True):
    """A request for a materialization."""

    created_ms: int
    """The wall clock of whoever asked."""
    token: str = ""
    """Tells it from others; "" in version 1, in which the object's name did."""


def ask(store: ObjectStore, clock: Clock, tokens: TokenSource) -> Request:
    """Request a materialization of the job; returns the request. Errors are those of `ObjectStore.put`."""
    request = Request(clock.now_ms(), tokens.token())
    store.put(layout.REQUEST, encode_request(request))
    return request


def encode_request(request: Request) -> bytes:
    """The body of a request."""
    return frame(_KIND, _VERSION, msgspec.json.encode(request))


def decode_request(data: bytes, name: str = layout.REQUEST) -> Request:
    """The request of an object with that name. Raises `CorruptDataError`, `IncompatibleError`."""
    return decode_json(unframe(_KIND, _VERSION, data, name).header, Request, "the request", name)


class DemandWatch:
    """Finds requests; for one thread."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._clock = clock
        self._served: str | None = None
        """Token of the last request, "" if there was none; None before the first look."""
        self._looked_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Is the next poll due?"""
        return self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS

    def look(self, now_ms: int) -> bool:
        """Poll; True if there is a new request. Errors are those of the store and of `decode_request`."""
        self._looked_ms = now_ms
        try:
            request = decode_request(self._store.get(layout.REQUEST))
        except MissingObjectError:
            self._served = ""
            return False
        before, self._served = self._served, request.token
        if before is None:
            return self._clock.now_ms() - request.created_ms < NEW_MS
        return request.token != before
