"""The identity of the rows that a batch reads, from the files of Spark's checkpoint location (I11).

The offsets of most sources say which rows a batch reads: those of Kafka, say. Those of a source of files are numbers in
a log that lies beside them, so the identity covers the lines of that log, too. Spark plans the same number with other
files if its location was set back, or is another query's copy.

The identity is sha256, in hex, of the end offsets. With sources of files another one follows after a dot, of the files.
`same_input` compares; a commit of an older version, or a log that Spark has cleaned, lacks the second part.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Protocol

from varvite.materializer.restore.spark_files import (
    NO_OFFSET,
    SourceOffset,
    compact_number,
    file_lines,
    file_log_number,
    is_counter,
    parse_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_BEGINNING: Final = "0"
"""Name of the file that a source writes once: the begin of what it reads."""


class LocationFiles(Protocol):
    """The part of a directory that is read here; names are relative to the checkpoint location."""

    def read(self, name: str) -> bytes | None:
        """The whole file; None if there is none."""
        ...

    def list_names(self, name: str) -> Iterable[str]:
        """Names of the files in a directory; nothing if it does not exist."""
        ...

    def url(self, name: str) -> str:
        """Full name of a file, for people."""
        ...


class ReadOnce:
    """Files of a checkpoint location, each of which is read once."""

    def __init__(self, files: LocationFiles) -> None:
        self._files = files
        self._read: dict[str, bytes | None] = {}

    def read(self, name: str) -> bytes | None:
        if name not in self._read:
            self._read[name] = self._files.read(name)
        return self._read[name]

    def list_names(self, name: str) -> Iterable[str]:
        return self._files.list_names(name)

    def url(self, name: str) -> str:
        return self._files.url(name)


def input_identity(files: LocationFiles, batch: int) -> str | None:
    """The identity of what a planned batch reads; None if Spark has no offsets of it (any more).

    Raises:
        CorruptDataError: A file does not parse.
        IncompatibleError: An unknown version of the offset log.
    """
    offsets = _offsets(files, batch)
    if offsets is None:
        return None
    identity = _hash([offset.line for offset in offsets])
    if all(file_log_number(offset.offset) is None for offset in offsets):
        return identity
    lines = _files_of(files, batch, offsets)
    return identity if lines is None else f"{identity}.{_hash(lines)}"


def written_once(files: LocationFiles, batch: int) -> dict[str, bytes] | None:
    """The files that the sources of a planned batch have written once, by name; lists the sources' directories.

    None if offsets and these files do not say all that the sources have read: they keep lists, or only count.
    """
    written: dict[str, bytes] = {}
    for source, offset, _ in _offsets(files, batch) or ():
        name = f"sources/{source}/{_BEGINNING}"
        if file_log_number(offset) is not None or not _says_all(files, source, offset):
            return None
        data = files.read(name)
        if data is not None:
            written[name] = data
    return written


def is_identified(files: LocationFiles, batch: int) -> bool:
    """Does `input_identity` tell all rows of a planned batch? Lists the directories of its sources.

    Not if a source counts (a socket), or keeps more than its beginning in its directory: what it reads then lies there.
    """
    offsets = _offsets(files, batch) or ()
    has_files = False
    for source, offset, _ in offsets:
        if offset == NO_OFFSET:
            continue
        if file_log_number(offset) is not None:
            has_files = True
            continue
        if not _says_all(files, source, offset):
            return False
    return not has_files or _files_of(files, batch, offsets) is not None


def _says_all(files: LocationFiles, source: str, offset: str) -> bool:
    """Does the offset say all that a source has read, with the beginning that it may have noted? Lists its directory.

    A counter without a beginning says nothing.
    """
    names = {name for name in files.list_names(f"sources/{source}") if not name.startswith(".")}
    return not names - {_BEGINNING} and not (is_counter(offset) and not names)


def _offsets(files: LocationFiles, batch: int) -> tuple[SourceOffset, ...] | None:
    name = f"offsets/{batch}"
    data = files.read(name)
    return None if data is None else parse_offsets(data, files.url(name), batch)


def _files_of(files: LocationFiles, batch: int, offsets: Sequence[SourceOffset]) -> list[str] | None:
    """Lines of the files that a batch reads, each after its source's name; None if a log lacks some of them."""
    before = {o.source: file_log_number(o.offset) for o in (_offsets(files, batch - 1) or ())} if batch else {}
    if batch and not before:
        return None
    lines: list[str] = []
    for source, offset, _ in offsets:
        end = file_log_number(offset)
        begin = before.get(source)
        for number in range(0 if begin is None else begin + 1, 0 if end is None else end + 1):
            read = _lines(files, f"sources/{source}", number)
            if read is None:
                return None
            lines += [f"{source} {line}" for line in read]
    return lines


def _lines(files: LocationFiles, directory: str, number: int) -> list[str] | None:
    """Lines of one number of a source's log; None if they are gone."""
    for name in (f"{directory}/{number}", f"{directory}/{number}.compact"):
        data = files.read(name)
        if data is not None:
            return file_lines(data, number, files.url(name))
    compact = [compact_number(name) for name in files.list_names(directory)]
    later = min((n for n in compact if n is not None and n > number), default=None)
    name = f"{directory}/{later}.compact"
    data = None if later is None else files.read(name)
    return None if data is None else file_lines(data, number, files.url(name))


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
