"""The files of Spark's checkpoint location that record a query's progress; pure (I11).

Their format (v1 and v2 of the offset log, Spark 4.1 to 4.3):

```
metadata        {"id":"<query id>"}
offsets/<N>     v1 or v2
                {"batchWatermarkMs":…,"batchTimestampMs":…,"conf":{…}}      metadata of the batch
                v1: one line per source, its end offset as JSON, or "-"
                v2: <source name>:<end offset as JSON> per source
commits/<N>     exists: batch N is acknowledged
sources/<s>/    what source s keeps; s is its line, from 0, or its name in v2
```

A source of files has a log there. Its offset `{"logOffset":<n>}` is a number in that log, no batch:

```
sources/<s>/<n>           v1, then one line per file: {"path":…,"timestamp":…,"batchId":<n>}
sources/<s>/<n>.compact   the same for all numbers up to n; it replaces <n>
```

The metadata line of `offsets/<N>` has the time at which Spark planned the batch, and its settings then. A batch that is
planned again reads the same rows if its offsets are the same, whatever that line says. Only files differ: their offset
is a counter.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.frame import UNPARSABLE
from varvite.storage.format.inspection import inspected

_VERSIONS: Final = ("v1", "v2")
_HEAD_LINES: Final = 2
_FILE_LOG_VERSION: Final = "v1"
NO_OFFSET: Final = "-"
"""In the place of the offset of a source that has had no rows yet."""
_COMPACT: Final = re.compile(r"(\d+)\.compact")


class SourceOffset(NamedTuple):
    """A source's end offset in a batch."""

    source: str
    """Name of its directory below `sources/`."""
    offset: str
    """JSON, or `NO_OFFSET`."""
    line: str
    """Line of the offset log."""


class _FileLogOffset(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The offset of a source of files."""

    log_offset: int


class _FileLogLine(msgspec.Struct, rename="camel"):
    """A file in the log of a source of files."""

    batch_id: int


class _QueryMetadata(msgspec.Struct):
    """Spark's `metadata` file."""

    id: str


def query_id_of(data: bytes, object_name: str) -> str:
    """The query's id in Spark's `metadata` file. Raises `CorruptDataError`."""
    try:
        return msgspec.json.decode(data, type=inspected(_QueryMetadata)).id
    except UNPARSABLE as error:
        raise CorruptDataError(
            f"Spark's query metadata does not parse ({error}); restore the checkpoint location",
            object_name=object_name,
        ) from None


def parse_offsets(data: bytes, object_name: str, batch: int) -> tuple[SourceOffset, ...]:
    """The end offsets in a file of the offset log, in an order that does not depend on that of named sources.

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
    if version == "v1":
        return tuple(SourceOffset(str(number), line, line) for number, line in enumerate(offsets))
    named = (line.partition(":") for line in sorted(offsets))
    return tuple(SourceOffset(name, offset, f"{name}:{offset}") for name, _, offset in named)


def file_log_number(offset: str) -> int | None:
    """The number in the log of a source of files; None if the offset is another source's."""
    try:
        return msgspec.json.decode(offset, type=inspected(_FileLogOffset)).log_offset
    except UNPARSABLE:
        return None


def is_counter(offset: str) -> bool:
    """Is an offset a plain number, which says nothing of the rows?"""
    return offset.strip().lstrip("-").isdecimal()


def file_lines(data: bytes, number: int, object_name: str) -> list[str]:
    """The lines of the files that a source's log has under a number, sorted; from a file for it or a compact one.

    Raises:
        CorruptDataError: It is not such a log, or a torn one.
    """
    version, *lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
    try:
        numbers = [msgspec.json.decode(line, type=inspected(_FileLogLine)).batch_id for line in lines]
        if version.strip() == _FILE_LOG_VERSION:
            return sorted(line for line, other in zip(lines, numbers, strict=True) if other == number)
    except UNPARSABLE:
        pass
    raise CorruptDataError(
        "the log of a source of files does not parse; restore the checkpoint location", object_name=object_name
    )


def compact_number(file: str) -> int | None:
    """The number of a compact file of a source's log; None for other names."""
    match = _COMPACT.fullmatch(file)
    return int(match[1]) if match else None


def _is_offset(line: str, version: str) -> bool:
    """Is a line a complete offset: `-`, a plain value, or JSON that parses?"""
    offset = line.partition(":")[2] if version == "v2" else line
    if not offset.strip():
        return False
    if offset[0] not in "{[":
        return True
    try:
        msgspec.json.decode(offset)
    except UNPARSABLE:
        return False
    return True
