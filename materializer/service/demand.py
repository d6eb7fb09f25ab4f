"""Materialization on demand: an object under `requests/` asks every materializer (docs/reference/formats/requests.md).

Each materializer serves a request once: it takes its ranges for due. The object is deleted after a while; who has not
seen it by then does not serve it, and a materializer that begins meanwhile serves it again. Neither harms: a request
is a hint about *when*, and nothing but the time of a materialization follows from it.
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
"""Time between two looks for requests: each costs a LIST."""
KEPT_MS: Final = 60_000
"""A request is deleted so long after this process has seen it."""
_KIND: Final = b"MREQ"
_VERSION: Final = 1


def ask(store: ObjectStore, clock: Clock, tokens: TokenSource) -> str:
    """Ask for a materialization of the job; returns the request's name. Errors are those of `ObjectStore.put`."""
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
        """Whether to look now."""
        return self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS

    def look(self, now_ms: int) -> bool:
        """Whether there is a request that was not seen before; deletes old ones. Errors are those of the store."""
        self._looked_ms = now_ms
        names = [meta.name for meta in self._store.list(layout.REQUESTS)]
        found = any(name not in self._seen for name in names)
        self._seen = {name: self._seen.get(name, now_ms) for name in names}
        old = [name for name, seen_ms in self._seen.items() if now_ms - seen_ms >= KEPT_MS]
        if old:
            self._store.delete(old)
        return found
