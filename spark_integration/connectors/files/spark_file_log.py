"""Spark's own log of the files that count in an output directory, which all of Spark's readers follow.

```
<path>/_spark_metadata/<n>           v1, then one line of JSON per file
<path>/_spark_metadata/<n>.compact   the same for all numbers up to n; every tenth, as Spark expects it
```

Files that no entry names are not there for `spark.read` and `spark.readStream` of the directory. Numbers have no gap.
An entry whose files do not count any more is overwritten without them, never deleted. Spark 4.3 reads a file twice
whose removal is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import UNPARSABLE
from varvite.storage.format.inspection import inspected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varvite.spark_integration.connectors.hadoop_files import FileInfo, HadoopDirectory

DIRECTORY: Final = "_spark_metadata"
COMPACT_EVERY: Final = 10
"""Spark derives it from the names of compact files; it is the default of
`spark.sql.streaming.fileSink.log.compactInterval`."""
KEPT_MAX: Final = 100
"""Entries before the newest compact one that readers may still be reading; older ones are deleted."""
_VERSION: Final = "v1"
_COMPACT: Final = ".compact"


class LoggedFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file, as Spark writes it."""

    path: str
    """Absolute URI."""
    size: int
    is_dir: bool = False
    modification_time: int
    block_replication: int
    block_size: int
    action: str = "add"

    @staticmethod
    def of(info: FileInfo) -> LoggedFile:
        """The line for a file that lies there."""
        return LoggedFile(
            path=info.url,
            size=info.size_bytes,
            modification_time=info.time_ms,
            block_replication=info.replication,
            block_size=info.block_bytes,
        )


def encode_entry(files: Iterable[LoggedFile]) -> bytes:
    """The bytes of an entry."""
    return b"\n".join([_VERSION.encode(), *map(msgspec.json.encode, files)])


def decode_entry(data: bytes, object_name: str) -> list[LoggedFile]:
    """The files of an entry. Raises `CorruptDataError`."""
    version, *lines = data.decode("utf-8", "replace").split("\n")
    try:
        if version.strip() == _VERSION:
            return [msgspec.json.decode(line, type=inspected(LoggedFile)) for line in lines if line]
    except UNPARSABLE:
        pass
    raise CorruptDataError(
        "an entry of the output directory's log does not parse; put the file back, or give the job another directory",
        object_name=object_name,
    )


def entry_name(number: int) -> str:
    """Name of an entry."""
    return f"{DIRECTORY}/{number}{_COMPACT if (number + 1) % COMPACT_EVERY == 0 else ''}"


class SparkFileLog:
    """The log of one directory; used by one thread of one driver."""

    def __init__(self, files: HadoopDirectory) -> None:
        """Read which entries there are. Raises `MayHaveHappenedError`."""
        self._files = files
        self._next = 0
        self.reload()

    def reload(self) -> None:
        """Read anew which entries there are."""
        numbers = [name.removesuffix(_COMPACT) for name in self._files.list_names(DIRECTORY)]
        self._next = 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1)

    @property
    def is_new(self) -> bool:
        """Is there no entry?"""
        return self._next == 0

    def files(self) -> list[LoggedFile]:
        """All files that count."""
        return [file for number in self._numbers() for file in self._read(number)]

    def append(self, files: Sequence[LoggedFile]) -> bool:
        """Add an entry; False if somebody else has used its number, then `reload`."""
        number = self._next
        is_compact = entry_name(number).endswith(_COMPACT)
        if self.is_new:
            self._files.make_directory(DIRECTORY)
        content = [*self.files(), *files] if is_compact else files
        if not self._files.create_whole(entry_name(number), encode_entry(content)):
            return False
        self._next += 1
        if is_compact:
            for old in range(number - KEPT_MAX - COMPACT_EVERY, number - KEPT_MAX):
                if old >= 0:
                    self._files.delete(entry_name(old))
        return True

    def remove(self, is_gone: Callable[[LoggedFile], bool]) -> tuple[list[LoggedFile], int]:
        """Overwrite the entries that name such files, the newest first; those files, and the number of all others."""
        removed: list[LoggedFile] = []
        left = 0
        for number in reversed(self._numbers()):
            files = self._read(number)
            kept = [file for file in files if not is_gone(file)]
            left += len(kept)
            if len(kept) < len(files):
                self._files.replace_whole(entry_name(number), encode_entry(kept))
                removed += [file for file in files if is_gone(file)]
        return removed, left

    def _numbers(self) -> range:
        """The newest compact entry and those after it."""
        compact = self._next // COMPACT_EVERY * COMPACT_EVERY - 1
        return range(max(compact, 0), self._next)

    def _read(self, number: int) -> list[LoggedFile]:
        name = entry_name(number)
        data = self._files.read(name)
        if data is None:
            raise CorruptDataError(
                "an entry of the output directory's log is missing; put the file back, or give the job another "
                "directory",
                object_name=self._files.url(name),
            )
        return decode_entry(data, self._files.url(name))
