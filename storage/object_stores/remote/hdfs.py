"""The dialect of HDFS through hdfs-native, which needs no Java.

* An object is written to a temporary file, synced on its DataNodes, and renamed. The NameNode decides the rename:
  without overwriting, one of two writers gets `FileExistsError`.
* hdfs-native closes a file in half a second: the NameNode refuses the first request, which commits the last block,
  until it has the DataNode's report of that block, and the client asks again after 500 ms only. A file whose blocks
  are committed is complete on disk, so it gets its name then, and closing goes on beside.
* A NameNode that restarts within that time takes the file for unfinished, and readers see it without its last block. So
  the length that they see is compared with that of the file, and the NameNode is told to close it.
* The package keeps connections to DataNodes for all clients of a process, which a forked child would go on with.
* A sync never returns if its DataNode is killed in some moments. So each call is waited for a limited time only.
* Reading past the end of a file would end in a panic, so its size is looked at first.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import math
import os
import posixpath
import re
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.local.store import STALE_S, TEMPORARY
from varvite.storage.object_stores.remote.dialect import PART_BYTES, READ_TIMEOUT_S, Page
from varvite.storage.object_stores.remote.errors import NO_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from varvite.storage.clock import TokenSource

_LIBRARY: Final = "hdfs_native"
_OF_CLIENT: Final = frozenset({"config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache"})
"""The options that are parameters of the client; all others are settings of Hadoop."""
_BOUNDED: Final[Mapping[str, str]] = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
"""By default it waits for a NameNode for minutes."""
_CALLS_AT_A_TIME: Final = 64
_COMMIT_POLL_S: Final = 0.002
_ATTEMPTS_MAX: Final = 8
"""Of what another process has changed meanwhile."""
_RECOVERY_S: Final = 10.0
_EXIT_S: Final = 3.0
_OF_JAVA: Final = re.compile(r'RPCError\("[\w.]*[.$](\w+)", "(.*?)(?:\\n|"\)$)', re.DOTALL)
"""An answer of the NameNode: the class of its exception, and its message before the stack trace."""
_NO_RIGHTS: Final = "AccessControlException"
_NO_TICKET: Final = re.compile(r"SASL|GSSAPI")


class HdfsError(OSError):
    """A failure that the client words in a text only."""

    def __init__(self, text: str, error_code: str = "") -> None:
        super().__init__(text)
        self.error_code = error_code
        """The name of Hadoop's exception, "" if there is none."""


class _Client(NamedTuple):
    """The client of a process."""

    hdfs: Any
    threads: AttemptThreads
    """Run its calls."""
    cleaned: list[str]
    """The directories whose old temporary files have been removed."""
    recovered_s: dict[str, float]
    """Files that the NameNode was told to close, and when, in seconds of the monotonic clock."""

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of a call. Raises `HdfsError` if there is none in time."""
        future = self.threads.submit(partial(call, *arguments))
        try:
            return future.result(READ_TIMEOUT_S)
        except TimeoutError:
            if future.done():
                raise
            self.threads.give_up(future)
            raise HdfsError(f"no answer within {READ_TIMEOUT_S} s") from None


class HdfsDialect:
    """Files below a directory of HDFS."""

    library = _LIBRARY
    survives_fork = False
    delete_max = 100
    changed_in_names = ":"

    def __init__(self, url: str, user_options: Mapping[str, Any], *, tokens: TokenSource | None = None) -> None:
        """Nothing is opened. Raises `InvalidRequestError` if the package is missing."""
        if importlib.util.find_spec(_LIBRARY) is None:
            raise InvalidRequestError(f"{url} cannot be opened without hdfs-native; pip install 'varvite[hdfs]'")
        host, _, path = url.partition("://")[2].partition("/")
        self._server = f"hdfs://{host}" if host else None
        self.root = f"/{path}" if path else ""
        self._options = dict(user_options)
        self._tokens = tokens or SystemTokens()
        self._library: Any = None

    def open(self) -> _Client:
        """Make a client, without a host in the URL that of `fs.defaultFS`. Raises `ValueError` for wrong options."""
        self._library = importlib.import_module(_LIBRARY)
        of_client = {name: value for name, value in self._options.items() if name in _OF_CLIENT}
        settings = {name: _setting(value) for name, value in self._options.items() if name not in _OF_CLIENT}
        try:
            hdfs = self._library.Client(self._server, {**_BOUNDED, **settings}, **of_client)
        except (OSError, RuntimeError) as error:
            raise ValueError(str(error)) from error
        threads = AttemptThreads(_CALLS_AT_A_TIME, "varvite-hdfs")
        atexit.register(_end_calls, threads, os.getpid())
        return _Client(hdfs, threads, [], {})

    def read(self, client: _Client, path: str) -> bytes:
        with _reading():
            return bytes(client.ask(_opened(client, path).read))

    def read_range(self, client: _Client, path: str, offset: int, length: int) -> bytes:
        with _reading():
            file = _opened(client, path)
            length = max(0, min(length, len(file) - offset))
            return bytes(client.ask(file.read_range, offset, length)) if length else b""

    def write(self, client: _Client, path: str, data: bytes) -> None:
        self._write(client, path, [data], overwrite=True)

    def create(self, client: _Client, path: str, data: bytes) -> None:
        self._write(client, path, [data], overwrite=False)

    def upload(self, client: _Client, path: str, source: Path) -> None:
        with source.open("rb") as file:
            self._write(client, path, iter(lambda: file.read(PART_BYTES), b""), overwrite=True)

    def download(self, client: _Client, path: str, target: Path) -> None:
        with _reading(), target.open("wb") as file:
            source = _opened(client, path)
            for offset in range(0, len(source), PART_BYTES):
                file.write(client.ask(source.read_range, offset, min(PART_BYTES, len(source) - offset)))

    def list_page(self, client: _Client, prefix: str, start_after: str, rest: str | None) -> Page:  # noqa: ARG002
        directory, hidden = posixpath.dirname(prefix) or "/", f"{self.root}/{TEMPORARY}/"
        with _translated():
            try:
                client.ask(client.hdfs.get_file_info, directory)
            except (FileNotFoundError, NotADirectoryError):
                return Page([], None)
            try:
                metas = [
                    ObjectMeta(status.path, status.length, status.modification_time / 1000)
                    for status in client.ask(_list, client, directory)
                    if not status.isdir and not status.path.startswith(hidden)
                ]
            except FileNotFoundError as error:  # a directory was removed meanwhile, empty
                raise HdfsError(str(error)) from None
        return Page(metas, None)

    def size(self, client: _Client, path: str) -> int:
        with _reading():
            status = client.ask(client.hdfs.get_file_info, path)
            if status.isdir:
                raise FileNotFoundError(path)
            return int(status.length)

    def delete(self, client: _Client, paths: Sequence[str]) -> None:
        with _translated():
            for path in paths:
                self._delete(client, path)
            for directory in {posixpath.dirname(path) for path in paths}:
                self._remove_empty(client, directory)

    def _delete(self, client: _Client, path: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if not client.ask(client.hdfs.get_file_info, path).isdir:
                client.ask(client.hdfs.delete, path)

    def _remove_empty(self, client: _Client, directory: str) -> None:
        """Remove directories that a delete left empty, so that their number stays bounded (I10)."""
        while len(directory) > len(self.root):
            try:
                is_directory = client.ask(client.hdfs.get_file_info, directory).isdir
                if not is_directory or not client.ask(client.hdfs.delete, directory):
                    return  # an object has the name
            except (OSError, RuntimeError):  # it has something in it again
                return
            directory = posixpath.dirname(directory)

    def _write(self, client: _Client, path: str, parts: Iterable[bytes], *, overwrite: bool) -> None:
        directory = f"{self.root}/{TEMPORARY}"
        temporary = f"{directory}/{self._tokens.token()}"
        with _translated():
            options = self._library.WriteOptions(overwrite=False, create_parent=True)
            # Not the wrapper, whose finalizer would close a file once more, which can take 15 s.
            file = client.ask(client.hdfs.inner.create, temporary, options)
            try:
                self._fill(client, file, temporary, parts)
                self._clean(client, directory, temporary)
                self._rename(client, temporary, path, overwrite=overwrite)
            except BaseException:
                with suppress(OSError, RuntimeError):
                    client.ask(client.hdfs.delete, temporary)
                raise

    def _fill(self, client: _Client, file: Any, path: str, parts: Iterable[bytes]) -> None:
        """Write a file, and wait until its blocks are committed."""
        size = 0
        for part in parts:
            if part:
                client.ask(file.write, part)
                # Only the block that is being written is synced; blocks end at multiples of the size of a part.
                client.ask(file.hsync)
                size += len(part)
        closing = client.threads.submit(file.close)
        give_up_s = SystemClock().monotonic_s() + READ_TIMEOUT_S
        while not closing.done() and len(client.ask(client.hdfs.read, path)) < size:
            if SystemClock().monotonic_s() > give_up_s:
                client.threads.give_up(closing)
                raise HdfsError(f"{path} is not committed within {READ_TIMEOUT_S} s")
            SystemClock().sleep(_COMMIT_POLL_S)
        if closing.done():
            closing.result()
        client.threads.give_up(closing)

    def _rename(self, client: _Client, temporary: str, path: str, *, overwrite: bool) -> None:
        for _ in range(_ATTEMPTS_MAX):
            try:
                return client.ask(client.hdfs.rename, temporary, path, overwrite)
            except FileNotFoundError:  # no directory yet, or it was removed, empty, meanwhile
                client.ask(partial(client.hdfs.mkdirs, posixpath.dirname(path), create_parent=True))
        raise HdfsError(f"the directory of {path} is removed again and again")

    def _clean(self, client: _Client, directory: str, temporary: str) -> None:
        """Remove temporary files of killed processes (I10), once per process and by the clock of the NameNode."""
        if not client.cleaned:
            client.cleaned.append(directory)
            now_ms = client.ask(client.hdfs.get_file_info, temporary).modification_time
            for status in client.ask(_list, client, directory):
                if status.modification_time < now_ms - STALE_S * 1000:
                    client.ask(client.hdfs.delete, status.path)


def _end_calls(threads: AttemptThreads, process: int) -> None:
    """Wait for calls that run: a process whose Python ends meanwhile is aborted by the library's code."""
    if os.getpid() == process:
        threads.join(_EXIT_S)


def _list(client: _Client, directory: str) -> list[Any]:
    return list(client.hdfs.list_status(directory, recursive=True))


def _opened(client: _Client, path: str) -> Any:
    """A reader of a file. Raises `HdfsError` if it does not see all of it yet."""
    status: Any = None
    for _ in range(_ATTEMPTS_MAX):
        before, status = status, client.ask(client.hdfs.get_file_info, path)
        file = client.ask(client.hdfs.read, path)
        if len(file) == status.length:
            return file
        if before is not None and (before.length, before.modification_time) == (
            status.length,
            status.modification_time,
        ):
            break  # nobody has replaced it meanwhile
    # Each call begins a recovery anew, which ends in seconds.
    now_s = SystemClock().monotonic_s()
    if client.recovered_s.get(path, -math.inf) < now_s - _RECOVERY_S:
        client.recovered_s[path] = now_s
        client.ask(client.hdfs.recover_lease, path)
    raise HdfsError(f"{path} cannot be read to its end yet; the NameNode was told to close it")


def _explained(text: str) -> OSError:
    answer = _OF_JAVA.match(text)
    if answer is None:
        return HdfsError(text, NO_TICKET if _NO_TICKET.search(text) else "")
    code, message = answer.groups()
    return PermissionError(message) if code == _NO_RIGHTS else HdfsError(f"{code}: {message}", code)


@contextmanager
def _translated() -> Generator[None]:
    """Raise the client's `RuntimeError`, which has Hadoop's own words, as `HdfsError`."""
    try:
        yield
    except RuntimeError as error:
        raise _explained(str(error)) from None


@contextmanager
def _reading() -> Generator[None]:
    """As `_translated`; a directory is no object."""
    try:
        with _translated():
            yield
    except (IsADirectoryError, NotADirectoryError) as error:
        raise FileNotFoundError(str(error)) from None


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
