"""A log store on SQLite, from the standard library: an example of a log storage of your own.

```python
env.configure("state.changelog.storage", "examples.sqlite_log:open_log")
```

The log data of a job is one table of names and bytes in a file beside the storage, which must be a local directory.
`synchronous = FULL` makes a transaction durable when it has been committed; other processes wait for the file's lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from varvite.extending import (
    LogTarget,
    ObjectMeta,
    SimpleLogStore,
    SystemClock,
    check_name,
    check_prefix,
    local_directory,
)
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingObjectError

Answer = TypeVar("Answer")


class SQLiteLog(SimpleLogStore):
    """Rows (name, data, time) in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def url(self) -> str:
        return f"sqlite://{self._path}"

    def get(self, name: str) -> bytes:
        check_name(name)
        row = self._run(lambda log: log.execute("SELECT data FROM log WHERE name = ?", (name,)).fetchone())
        if row is None:
            raise MissingObjectError(f"there is no {name} in {self.url}", object_name=name)
        return row[0]

    def put(self, name: str, data: bytes) -> None:
        row = (check_name(name), bytes(data), SystemClock().now_ms() / 1000)
        self._run(lambda log: log.execute("REPLACE INTO log VALUES (?, ?, ?)", row))

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        check_prefix(prefix)
        # Names compare by code points, as Python's do; "\U0010ffff" comes after all that begin with the prefix.
        query = "SELECT name, length(data), modified_s FROM log WHERE name >= ? AND name < ? AND name > ? ORDER BY name"
        rows = self._run(lambda log: log.execute(query, (prefix, prefix + "\U0010ffff", start_after)).fetchall())
        return [ObjectMeta(*row) for row in rows]

    def delete(self, names: Iterable[str]) -> None:
        rows = [(check_name(name),) for name in names]
        self._run(lambda log: log.executemany("DELETE FROM log WHERE name = ?", rows))

    def _run(self, call: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """A transaction in a connection of its own: calls come from many threads and forked processes."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=30)) as log, log:
                log.execute("PRAGMA synchronous = FULL")
                log.execute("CREATE TABLE IF NOT EXISTS log (name TEXT PRIMARY KEY, data BLOB, modified_s REAL)")
                return call(log)
        except (OSError, sqlite3.Error) as error:
            raise DidNotHappenError(f"{self.url}: {error}; see whether the disk is full, then try again") from error


def open_log(target: LogTarget) -> SQLiteLog:
    """The log of a job, beside its storage."""
    directory = local_directory(target.storage_url)
    if directory is None:
        raise InvalidRequestError(f"{target.storage_url} is no local directory, beside which SQLite could be")
    return SQLiteLog(directory.with_name(f"{directory.name}-log") / f"{target.job_id}.sqlite")
