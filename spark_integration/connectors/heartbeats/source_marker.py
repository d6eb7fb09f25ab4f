"""The marker of a query's sources beside Spark's checkpoint: whether heartbeats are among them.

Format: docs/reference/formats/checkpoint-location.md.

Spark refuses a checkpoint location with another number of sources. So the decision of the first run holds for the life
of the location.

Invariants: I8 (a frame with magic, version and checksums), I11 (a contradiction is an error before the query starts).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from varvite.materializer.options.driver import HEARTBEAT_ENABLED
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.frame import decode_json, frame, unframe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_log: Final = logging.getLogger(__name__)
KIND: Final = b"SRCM"
VERSION: Final = 1
MARKER: Final = "_varvite/sources"
"""Name in the checkpoint location."""


class QuerySources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a query. No marker: there are no heartbeats."""

    heartbeat: bool
    """Heartbeats are united with the user's input."""


class CheckpointFiles(Protocol):
    """The part of a `HadoopDirectory` that is needed of the checkpoint location."""

    def url(self, name: str) -> str: ...
    def read(self, name: str) -> bytes | None: ...
    def create(self, name: str, data: bytes) -> bool: ...
    def delete(self, name: str) -> None: ...
    def list_names(self, name: str = "") -> Iterator[str]: ...


def encode_sources(sources: QuerySources) -> bytes:
    """The bytes of the marker."""
    return frame(KIND, VERSION, msgspec.json.encode(sources))


def decode_sources(data: bytes, object_name: str) -> QuerySources:
    """The marker of these bytes. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(KIND, VERSION, data, object_name)
    return decode_json(opened.header, QuerySources, "the marker", object_name)


def settle_heartbeat(
    files: CheckpointFiles, in_chain: Mapping[str, bytes], *, option: bool | None, has_timers: bool
) -> bool:
    """Decide if the query has heartbeats, anew until Spark has planned a batch; True is written as the marker.

    Args:
        files: Spark's checkpoint location.
        in_chain: The files that the start will make in an empty location, if the query has begun.
        option: `pipeline.heartbeat.enabled`; None: not set.
        has_timers: A function of the job has timers.

    Raises:
        InvalidRequestError: The location's queries are without heartbeats and the option is true, or the reverse.
        CorruptDataError: The marker of a location in use is damaged.
    """
    data = in_chain.get(MARKER) if in_chain else files.read(MARKER)
    if not in_chain and next(iter(files.list_names("offsets")), None) is None:
        heartbeat = has_timers if option is None else option
        files.delete(MARKER)
        if heartbeat:
            files.create(MARKER, encode_sources(QuerySources(heartbeat=True)))
        return heartbeat
    heartbeat = data is not None and decode_sources(data, files.url(MARKER)).heartbeat
    if option is not None and option != heartbeat:
        raise InvalidRequestError(
            f"{HEARTBEAT_ENABLED.key} is {str(option).lower()}, but this checkpoint location began with "
            f"{str(heartbeat).lower()}, and Spark does not take it back with another number of sources; remove "
            "the setting, or start with a new checkpointLocation",
            object_name=files.url(""),
        )
    if has_timers and not heartbeat and option is None:
        _log.warning(
            "the query has timers but no heartbeats, because its checkpoint location %s began without them: timers "
            "fire only in batches that have input; a new checkpointLocation begins with heartbeats",
            files.url(""),
        )
    return heartbeat
