"""The files of Spark's checkpoint location that record a query's progress; pure (I11).

Their format (v1 and v2 of the offset log, Spark 4.1 to 4.3):

```
metadata        {"id":"<query id>"}
offsets/<N>     v1 or v2
                {"batchWatermarkMs":…,"batchTimestampMs":…,"conf":{…}}      metadata of the batch
                v1: one line per source, its end offset as JSON, or "-"
                v2: <source name>:<end offset as JSON> per source
commits/<N>     exists: batch N is acknowledged
```

The hash is over the end offsets only. The metadata line has the time at which Spark planned the batch, and its settings
then. A batch that is planned again reads the same rows if its offsets are the same, whatever that line says.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError

_VERSIONS: Final = ("v1", "v2")
_HEAD_LINES: Final = 2


class _QueryMetadata(msgspec.Struct):
    """Spark's `metadata` file."""

    id: str


def query_id_of(data: bytes, object_name: str) -> str:
    """The query's id in Spark's `metadata` file. Raises `CorruptDataError`."""
    try:
        return msgspec.json.decode(data, type=_QueryMetadata).id
    except msgspec.DecodeError as error:
        raise CorruptDataError(
            f"Spark's query metadata does not parse ({error}); restore the checkpoint location",
            object_name=object_name,
        ) from None


def hash_offsets(data: bytes, object_name: str, batch: int) -> str:
    """sha256, in hex, of the end offsets in a file of the offset log.

    Raises:
        CorruptDataError: It is not such a file, or a torn one.
        IncompatibleError: Its version is unknown.
    """
    lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
    version = lines[0].strip()
    if version.startswith("v") and version[1:].isdecimal() and version not in _VERSIONS:
        raise IncompatibleError(
            f"Spark's offset log has version {version}, this varvite reads {_VERSIONS}; use a newer varvite",
            batch=batch,
            object_name=object_name,
        )
    offsets = lines[_HEAD_LINES:]
    if version not in _VERSIONS or not offsets or not all(_is_offset(line, version) for line in offsets):
        raise CorruptDataError(
            "a file of Spark's offset log does not parse; restore the checkpoint location",
            batch=batch,
            object_name=object_name,
        )
    # Sources of v2 have names, so their order means nothing.
    ordered = offsets if version == "v1" else sorted(offsets)
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def _is_offset(line: str, version: str) -> bool:
    """Is a line a complete offset: `-`, a plain value, or JSON that parses?"""
    offset = line.partition(":")[2] if version == "v2" else line
    if not offset.strip():
        return False
    if offset[0] not in "{[":
        return True
    try:
        msgspec.json.decode(offset)
    except msgspec.DecodeError:
        return False
    return True
