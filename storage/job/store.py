"""The objects of one job, `<root>/<job>`, as a store; and, to be read only, what it shares with the jobs beside it.

What `job.json` says of how the job's objects are stored holds here, so that whoever opens a job, driver, state worker,
materializer or tool, reads and writes them alike: if it is encrypted, all objects but `job.json` itself are; and log
data may be in a log store elsewhere. It is read when the first other object is asked for. Until there is one, nothing
is encrypted, which concerns the preflight alone.

Objects that a clone shares with its source have names that lead out of the job (`layout.shared`). They can be read, as
the source's `job.json` says, but neither listed nor written nor deleted, so a clone cannot harm its source (I7).

Nor is what somebody else has put among the objects (`layout.is_foreign`): it can be nothing that is needed, and it is
not varvite's to delete.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from varvite.storage.clock import SystemTokens
from varvite.storage.errors import IncompatibleError, MissingObjectError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import JobRecord, decode_record
from varvite.storage.job.log_store import AREAS, LogTarget, is_log, open_log
from varvite.storage.job.preflight import PREFLIGHT
from varvite.storage.job.storage_choice import check_keys
from varvite.storage.object_stores.contract import is_reusable
from varvite.storage.object_stores.encrypted.keys import open_keyring
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.names import check_name
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

    from varvite.storage.clock import TokenSource
    from varvite.storage.format.records import JobStorage
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.prepared_object import PreparedObject


class KnownJob(NamedTuple):
    """What `job.json` says, for who has it from somebody who has read it."""

    job_id: str
    storage: JobStorage | None


class _Stores(NamedTuple):
    """A job's stores, as its record says."""

    main: ObjectStore
    log: ObjectStore
    """Log data; may be the same."""

    def of(self, name: str) -> ObjectStore:
        """The store of an object, or of a prefix that is not of both."""
        return self.log if is_log(name) else self.main


class JobStore:
    """The objects of `root` below `job/`; see `ObjectStore` for each method.

    All of them raise `MissingKeyError` if the job is encrypted and this process lacks the key.
    """

    def __init__(
        self,
        root: ObjectStore,
        job: str,
        *,
        known: KnownJob | None = None,
        key_provider: str | None = None,
        log_storage: str | None = None,
        tokens: TokenSource | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            root: The storage.
            job: The job's directory.
            known: What `job.json` says, from somebody who is trusted; None: it is read when it is needed.
            key_provider: Where keys come from, see `open_keyring`.
            log_storage: A factory of log stores that may be imported, see `open_log`.
            tokens: Salts of encrypted objects.

        Raises `InvalidRequestError` if `job` could not be a name.
        """
        self._plain = PrefixedStore(root, job, job=job)
        self._root = root
        self._job = job
        self._known = known
        self._key_provider = key_provider
        self._log_storage = log_storage
        self._tokens = tokens or SystemTokens()
        self._opened: _Stores | None = None
        self._job_json: bytes | None = None
        """What it was opened by."""
        self._others: dict[str, JobStore] = {}

    @property
    def url(self) -> str:
        return self._plain.url

    def get(self, name: str) -> bytes:
        store, own = self._reads(name)
        with _own_names(name):
            data = store.get(own)
        if name == layout.JOB and self._known is None and data != self._job_json:
            self._opened = None  # another job has the name now, and may be stored in another way
        if store is self._plain and is_sealed(data):
            raise IncompatibleError(
                f"the object is encrypted, but {layout.JOB} says that the job is not; bring back the {layout.JOB} with "
                "which it was made",
                object_name=name,
            )
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        store, own = self._reads(name)
        with _own_names(name):
            return store.get_range(own, offset, length)

    def get_file(self, name: str, path: Path) -> None:
        store, own = self._reads(name)
        with _own_names(name):
            store.get_file(own, path)

    def link_file(self, name: str, path: Path) -> bool:
        store, own = self._reads(name)
        with _own_names(name):
            return store.link_file(own, path)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        return prepare(self._store_of(name), name, content)

    def is_reusable(self, name: str) -> bool:
        store, own = self._reads(name)
        with _own_names(name):
            return is_reusable(store, own)

    def put(self, name: str, data: bytes) -> None:
        self._store_of(name).put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._store_of(name).put_if_absent(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._store_of(name).put_file(name, path)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        found = self._store_of(prefix).list(prefix, start_after=start_after)
        stores = self._opened
        spans = not is_log(prefix) and any(area.startswith(prefix) for area in AREAS)
        if stores is not None and stores.log is not stores.main and spans:
            found = sorted([*found, *stores.log.list(prefix, start_after=start_after)])
        return [meta for meta in found if not layout.is_foreign(meta.name)]

    def delete(self, names: Iterable[str]) -> None:
        wanted = [check_name(name) for name in names]
        for is_of_log in (False, True):
            own = [name for name in wanted if is_log(name) == is_of_log]
            if own:
                self._store_of(own[0]).delete(own)

    def _reads(self, name: str) -> tuple[ObjectStore, str]:
        """Which store to read the object from, and its name there."""
        if not layout.is_shared(name):
            return self._store_of(name), name
        job, _, own = check_name(layout.name_in_storage(name)).partition("/")
        other = self._others.get(job)
        if other is None:
            other = JobStore(
                self._root,
                job,
                key_provider=self._key_provider,
                log_storage=self._log_storage,
                tokens=self._tokens,
            )
            self._others[job] = other
        return other, own

    def _store_of(self, name: str) -> ObjectStore:
        """The store of an own object, or of a prefix."""
        if name == layout.JOB or name.startswith(PREFLIGHT):
            return self._plain
        return (self._opened or self._open()).of(name)

    def _open(self) -> _Stores:
        known = self._known or self._read_record()
        if known is None:
            return _Stores(self._plain, self._plain)
        self._opened = self._as_stored(known)
        return self._opened

    def _read_record(self) -> KnownJob | None:
        try:
            data = self._plain.get(layout.JOB)
        except MissingObjectError:
            return None
        record = decode_record(data, JobRecord, layout.JOB)
        self._job_json = data
        return KnownJob(record.job_id, record.storage)

    def _as_stored(self, known: KnownJob) -> _Stores:
        storage = known.storage
        if storage is None:
            return _Stores(self._plain, self._plain)
        main: ObjectStore = self._plain
        log: ObjectStore = self._plain
        if storage.log is not None:
            trusted = self._log_storage if self._known is None else storage.log.type
            target = LogTarget(job_id=known.job_id, job=self._job, storage_url=self._root.url)
            log = open_log(self._root, storage.log, target, trusted)
        if storage.encryption is not None:
            keyring = open_keyring(self._key_provider)
            check_keys(storage.encryption, keyring)
            together = log is main
            main = EncryptedStore(main, keyring, known.job_id, self._tokens)
            log = main if together else EncryptedStore(log, keyring, known.job_id, self._tokens)
        return _Stores(main, log)


@contextmanager
def _own_names(name: str) -> Generator[None]:
    """Errors of reading an object name it, and what else of its job, as the job that reads it does."""
    if not layout.is_shared(name):
        yield
        return
    try:
        yield
    except VarviteError as error:
        named = error.context.get("object_name")
        if isinstance(named, str):
            error.context["object_name"] = layout.shared(layout.name_in_storage(name).partition("/")[0], named)
        raise
