"""Materialization on demand: an object under `requests/` is a request (docs/reference/formats/requests.md).

Each materializer serves a request once: all its ranges become due. The object is deleted after a while. A materializer
that has not seen it by then does not serve it, and one that starts meanwhile serves it again. Both are harmless: only
the time of a materialization depends on a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.format import layout
from varvite.storage.format.frame import frame

if TYPE_CHECKING:
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.object_stores.contract import ObjectStore

LOOK_MS: Final = 5_000
"""Time between two polls for requests: each costs a LIST."""
KEPT_MS: Final = 60_000
"""Time from the first sight of a request by this process to its deletion."""
_KIND: Final = b"MREQ"
_VERSION: Final = 1


def ask(store: ObjectStore, clock: Clock, tokens: TokenSource) -> str:
    """Request a materialization of the job; returns the request's name. Errors are those of `ObjectStore.put`."""
    name = layout.request(tokens.token())
    store.put(name, encode_request(clock.now_ms()))
    return name


def encode_request(created_ms: int) -> bytes:
    """The body of a request; `created_ms` is only for people."""
    return frame(_KIND, _VERSION, msgspec.json.encode({"created_ms": created_ms}))


class DemandWatch:
    """Finds requests; for one thread."""

    def __init__(self, store: ObjectStore) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._seen: dict[str, int] = {}
        self._looked_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Is the next poll due?"""
        return self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS

    def look(self, now_ms: int) -> bool:
        """Poll; True if there is a new request. Deletes old ones. Errors are those of the store."""
        self._looked_ms = now_ms
        names = [meta.name for meta in self._store.list(layout.REQUESTS)]
        has_new = any(name not in self._seen for name in names)
        self._seen = {name: self._seen.get(name, now_ms) for name in names}
        old = [name for name, seen_ms in self._seen.items() if now_ms - seen_ms >= KEPT_MS]
        if old:
            self._store.delete(old)
        return has_new
