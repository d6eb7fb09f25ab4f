"""The object store at a remote URL, above all `s3://`, through whichever client library its dialect speaks.

Idempotent calls are retried here, a bounded number of times. Put-if-absent is sent once, since an unclear answer has to
be resolved by reading back (`varvite.storage.transfer.claim`). Clients are made lazily and per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError, InvariantError, RetryableError, VarviteError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.contract import check_range, truncated
from varvite.storage.object_stores.local.files import check_source, complete_or_absent
from varvite.storage.object_stores.names import check_name, check_prefix
from varvite.storage.object_stores.remote.engine import dialect_of
from varvite.storage.object_stores.remote.errors import explain, failure
from varvite.storage.object_stores.remote.process_clients import ProcessClients
from varvite.storage.object_stores.remote.protocols import AZURE_PROTOCOLS, S3_PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectMeta

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class _Call:
    """A call, for its error text."""

    doing: str
    name: str | None
    writes: bool = False
    local: Path | None = None


class RemoteStore:
    """Objects below a URL."""

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        exclusive_create: bool = False,
    ) -> None:
        """Nothing is opened before the first call.

        Args:
            url: `<protocol>://<path>`; for S3 `s3://<bucket>/<path>`.
            storage_options: fsspec's options of that filesystem, for S3 `key`, `secret`, `endpoint_url`,
                `client_kwargs`, `config_kwargs`, … Timeouts are `config_kwargs={"connect_timeout": seconds,
                "read_timeout": seconds}`, 5 and 20 by default. `engine` chooses between the clients of S3.
            clock: Makes the pauses between attempts.
            backoff: The attempts of an idempotent call, 3 by default.
            exclusive_create: Vouch that `pipe_file(..., mode="create")` of a filesystem other than S3 is atomic.

        Raises `InvalidRequestError` if the URL is not one, or holds credentials, or if S3 takes no such options.
        """
        self._protocol, self._path_in_url = _split(url)
        self._user_options, self._exclusive_create = dict(storage_options or {}), exclusive_create
        self._clock = clock or SystemClock()
        self._backoff = backoff or Backoff(attempts=3, initial_s=0.1, maximum_s=2.0)
        self._dialect = dialect_of(self.url, self._user_options, exclusive_create=exclusive_create)
        self._clients = ProcessClients(
            self._open, url=self.url, library=self._dialect.library, survives_fork=self._dialect.survives_fork
        )

    @property
    def storage_options(self) -> dict[str, Any]:
        """The options that open another URL in the same way; may hold secrets."""
        return {**self._user_options, "exclusive_create": self._exclusive_create}

    @property
    def url(self) -> str:
        return f"{self._protocol}://{self._path_in_url}"

    def get(self, name: str) -> bytes:
        path = self._path(name)
        return self._retry(_Call("reading", name), lambda client: self._dialect.read(client, path))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_range(name, offset, length)
        path, what = self._path(name), _Call("reading", name)
        if length == 0:  # HTTP has no empty range
            size = self._retry(what, lambda client: self._dialect.size(client, path))
            if offset > size:
                raise truncated(name, offset, length, 0)
            return b""

        def read(client: Any) -> bytes:
            try:
                return self._dialect.read_range(client, path, offset, length)
            except Exception as error:
                facts = failure(error)
                if facts.is_range_past_end:
                    raise truncated(name, offset, length, 0) from error
                if facts.is_range_ignored:
                    raise self._ranges_ignored(name, "the whole object", length) from error
                raise

        data = self._retry(what, read)
        if len(data) > length:
            raise self._ranges_ignored(name, f"{len(data)} bytes", length)
        if len(data) < length:
            raise truncated(name, offset, length, len(data))
        return data

    def _ranges_ignored(self, name: str, answer: str, length: int) -> InvalidRequestError:
        return InvalidRequestError(
            f"reading {self.url}/{name}: the storage, or a proxy before it, answered {answer} to a request for {length}"
            " bytes, as if it ignored ranges; correct the endpoint, or choose another storage",
            object_name=name,
        )

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._retry(_Call("writing", name, writes=True), lambda client: self._dialect.write(client, path, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        client = self._clients.client()
        try:
            self._dialect.create(client, path, data)
        except VarviteError:
            raise
        except Exception as error:
            if failure(error).is_conflict:
                return False
            explained = self._explain(error, _Call("creating", name, writes=True))
            if explained is None:
                raise
            raise explained from error
        return True

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        full = self._full(check_prefix(prefix))
        after = self._full(start_after) if start_after else ""
        skip = len(self._full(""))
        metas: list[ObjectMeta] = []
        rest: str | None = None
        while True:
            page = self._retry(
                _Call("listing", None), lambda client, at=rest: self._dialect.list_page(client, full, after, at)
            )
            for meta in page.objects:
                name = meta.name[skip:]
                # Other tools leave markers of directories, whose names end with "/".
                if meta.name.startswith(full) and name > start_after and not name.endswith("/"):
                    metas.append(meta._replace(name=name))
            rest = page.rest
            if rest is None:
                return sorted(metas)

    def delete(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        size = self._dialect.delete_max
        for start in range(0, len(paths), size):
            chunk = paths[start : start + size]
            try:
                self._retry(
                    _Call("deleting", None, writes=True),
                    lambda client, paths=chunk: self._dialect.delete(client, paths),
                )
            except VarviteError as error:
                named = error.context.get("object_name")
                if isinstance(named, str):
                    error.context["object_name"] = named.removeprefix(self._full(""))
                raise

    def put_file(self, name: str, path: Path) -> None:
        source, target = check_source(path), self._path(name)
        self._retry(
            _Call("uploading", name, writes=True, local=source),
            lambda client: self._dialect.upload(client, target, source),
        )

    def get_file(self, name: str, path: Path) -> None:
        source = self._path(name)
        with complete_or_absent(path) as part:

            def fetch(client: Any) -> None:
                # Empties the file of a failed attempt; some filesystems write no file for an empty object.
                part.write_bytes(b"")
                self._dialect.download(client, source, part)

            self._retry(_Call("downloading", name, local=part), fetch)

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False

    def _path(self, name: str) -> str:
        for character in self._dialect.changed_in_names:
            if character in name:
                raise InvalidRequestError(
                    f"{name!r} cannot be an object name: {self.url} has no {character!r} in names; correct the name",
                    object_name=name,
                )
        return self._full(check_name(name))

    def _full(self, name: str) -> str:
        return f"{self._dialect.root}/{name}"

    def _retry(self, what: _Call, run: Callable[[Any], _Answer]) -> _Answer:
        """Run an idempotent call, with the retries of the backoff."""
        last: RetryableError | None = None
        for pause_s in self._backoff.pauses():
            if pause_s:
                self._clock.sleep(pause_s)
            try:
                return run(self._clients.client())
            except RetryableError as error:
                last = error
            except VarviteError:
                raise
            except Exception as error:  # filesystems raise anything; unknown exceptions are passed on
                explained = self._explain(error, what)
                if explained is None:
                    raise
                if not isinstance(explained, RetryableError):
                    raise explained from error
                explained.__cause__, last = error, explained
        raise last or InvariantError("a backoff without attempts")

    def _explain(self, error: Exception, what: _Call) -> VarviteError | None:
        doing = f"{what.doing} {self.url}/{what.name or ''}"
        return explain(error, doing, what.name, writes=what.writes, local=what.local)

    def _open(self) -> Any:
        try:
            return self._dialect.open()
        except (ImportError, ValueError, TypeError, KeyError) as error:
            raise InvalidRequestError(f"{self.url} cannot be opened: {error}; correct the storage options") from error


def _split(url: str) -> tuple[str, str]:
    """Protocol and path of a URL."""
    protocol, separator, path = url.partition("://")
    path = path.strip("/") if protocol in S3_PROTOCOLS else path.rstrip("/")
    if not separator or not protocol or not path or "::" in url:
        raise InvalidRequestError(f"{_without_secrets(url)!r} is not a storage URL; give <protocol>://<path>")
    host = path.split("/", 1)[0]
    names_account = protocol in AZURE_PROTOCOLS and ":" not in host  # container@account.dfs.core.windows.net
    if ("@" in host and not names_account) or "?" in path:
        raise InvalidRequestError(f"{_without_secrets(url)!r} has credentials or a query; give them as storage options")
    return protocol, path


def _without_secrets(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url.partition("?")[0]
