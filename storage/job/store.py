"""The objects of one job, `<root>/<job>`, as a store; objects shared with other jobs can be read.

The store follows `job.json`, so that driver, state workers, materializer and tools read and write a job in the same
way: in an encrypted job all objects but `job.json` itself are encrypted, and log data may be in a log store elsewhere.
`job.json` is read lazily, with the first other object. Before it exists nothing is encrypted, which concerns only the
preflight. It is not protected, so a driver goes by the record that it has checked (`JobStore.pin`), whatever is stored
under that name later.

Objects that a clone shares with its source have names that lead out of the job (`layout.shared`). They can be read, by
the rules of the source's `job.json`, but not listed, written or deleted, so a clone cannot harm its source (I7). The
source of an encrypted clone must be encrypted, too: else who can write the storage could give the clone any objects.

Foreign files among the objects (`layout.is_foreign`) are not listed: nothing needs them, and varvite must not delete
them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from varvite.storage.clock import SystemTokens
from varvite.storage.errors import IncompatibleError, MissingObjectError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import JobRecord, JobStorage, decode_record, encode_record
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
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.prepared_object import PreparedObject


class JobFacts(NamedTuple):
    """The content of `job.json` that a store needs, for a process that has it from a trusted one."""

    job_id: str
    storage: JobStorage | None


class _Stores(NamedTuple):
    """The stores of a job."""

    main: ObjectStore
    log: ObjectStore
    """The store of log data; may be the same."""

    def of(self, name: str) -> ObjectStore:
        """The store of an object, or of a prefix that only one of them has."""
        return self.log if is_log(name) else self.main


class JobStore:
    """The objects of `root` below `job/`.

    All methods raise `MissingKeyError` if the job is encrypted and this process lacks the key.
    """

    def __init__(
        self,
        root: ObjectStore,
        job: str,
        *,
        facts: JobFacts | None = None,
        key_provider: str | None = None,
        log_storage: str | None = None,
        tokens: TokenSource | None = None,
        encrypted_clone: str | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            root: The storage.
            job: The job's directory.
            facts: The content of `job.json`, from a trusted process; None: it is read lazily.
            key_provider: The source of keys, as for `open_keyring`.
            log_storage: The factory of log stores that may be imported, as for `open_log`.
            tokens: The source of salts of encrypted objects.
            encrypted_clone: An encrypted job that reads this one's objects, so that this one must be encrypted, too.

        Raises `InvalidRequestError` if `job` could not be a name.
        """
        self._plain = PrefixedStore(root, job, job=job)
        self._root = root
        self._job = job
        self._facts = facts
        self._key_provider = key_provider
        self._log_storage = log_storage
        self._tokens = tokens or SystemTokens()
        self._encrypted_clone = encrypted_clone
        self._pinned: JobRecord | None = None
        self._opened: _Stores | None = None
        self._job_json: bytes | None = None
        """The `job.json` that the stores were opened by."""
        self._shared_jobs: dict[str, JobStore] = {}

    @property
    def url(self) -> str:
        return self._plain.url

    def pin(self, record: JobRecord) -> None:
        """Go by this record, which was checked, for good; `job.json` is not read again."""
        self._pinned, self._opened = record, None
        self._shared_jobs.clear()

    def get(self, name: str) -> bytes:
        if name == layout.JOB and self._pinned is not None:
            return encode_record(self._pinned)
        store, local_name = self._locate(name)
        with _errors_by_name(name):
            data = store.get(local_name)
        if name == layout.JOB and self._facts is None and data != self._job_json:
            self._opened = None  # another job has the name now, perhaps with other encryption
            self._shared_jobs.clear()
        if store is self._plain and is_sealed(data):
            raise IncompatibleError(
                f"the object is encrypted, but {layout.JOB} says that the job is not; bring back the {layout.JOB} with "
                "which it was made",
                object_name=name,
            )
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        store, local_name = self._locate(name)
        with _errors_by_name(name):
            return store.get_range(local_name, offset, length)

    def get_file(self, name: str, path: Path) -> None:
        store, local_name = self._locate(name)
        with _errors_by_name(name):
            store.get_file(local_name, path)

    def link_file(self, name: str, path: Path) -> bool:
        store, local_name = self._locate(name)
        with _errors_by_name(name):
            return store.link_file(local_name, path)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        return prepare(self._store_of(name), name, content)

    def is_reusable(self, name: str) -> bool:
        store, local_name = self._locate(name)
        with _errors_by_name(name):
            return is_reusable(store, local_name)

    def put(self, name: str, data: bytes) -> None:
        self._store_of(name).put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._store_of(name).put_if_absent(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._store_of(name).put_file(name, path)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        metas = self._store_of(prefix).list(prefix, start_after=start_after)
        stores = self._opened
        spans_both = not is_log(prefix) and any(area.startswith(prefix) for area in AREAS)
        if stores is not None and stores.log is not stores.main and spans_both:
            metas = sorted([*metas, *stores.log.list(prefix, start_after=start_after)])
        return [meta for meta in metas if not layout.is_foreign(meta.name)]

    def delete(self, names: Iterable[str]) -> None:
        checked = [check_name(name) for name in names]
        for is_of_log in (False, True):
            group = [name for name in checked if is_log(name) == is_of_log]
            if group:
                self._store_of(group[0]).delete(group)

    def _locate(self, name: str) -> tuple[ObjectStore, str]:
        """The store to read the object from, and its name there."""
        if not layout.is_shared(name):
            return self._store_of(name), name
        job, _, local_name = check_name(layout.name_in_storage(name)).partition("/")
        shared = self._shared_jobs.get(job)
        if shared is None:
            is_encrypted = isinstance((self._opened or self._open()).main, EncryptedStore)
            shared = JobStore(
                self._root,
                job,
                key_provider=self._key_provider,
                log_storage=self._log_storage,
                tokens=self._tokens,
                encrypted_clone=self._job if is_encrypted else None,
            )
            self._shared_jobs[job] = shared
        return shared, local_name

    def _store_of(self, name: str) -> ObjectStore:
        """The store of an object of this job, or of a prefix."""
        if name == layout.JOB or name.startswith(PREFLIGHT):
            return self._plain
        return (self._opened or self._open()).of(name)

    def _open(self) -> _Stores:
        pinned = self._pinned
        facts = self._facts or (JobFacts(pinned.job_id, pinned.storage) if pinned else self._read_record())
        if self._encrypted_clone is not None and (facts is None or (facts.storage or JobStorage()).encryption is None):
            raise IncompatibleError(
                f"job {self._encrypted_clone!r} is encrypted and reads objects of job {self._job!r}, which must be "
                f"encrypted, too, and whose {layout.JOB} does not say so; bring back the {layout.JOB} with which it "
                "was made, or start a new job from the state with the claim mode NO_CLAIM",
                job=self._job,
                object_name=layout.JOB,
            )
        if facts is None:
            return _Stores(self._plain, self._plain)
        self._opened = self._open_stores(facts)
        return self._opened

    def _read_record(self) -> JobFacts | None:
        try:
            data = self._plain.get(layout.JOB)
        except MissingObjectError:
            return None
        record = decode_record(data, JobRecord, layout.JOB)
        self._job_json = data
        return JobFacts(record.job_id, record.storage)

    def _open_stores(self, facts: JobFacts) -> _Stores:
        storage = facts.storage
        if storage is None:
            return _Stores(self._plain, self._plain)
        main: ObjectStore = self._plain
        log: ObjectStore = self._plain
        if storage.log is not None:
            trusted = self._log_storage if self._facts is None else storage.log.type
            target = LogTarget(job_id=facts.job_id, job=self._job, storage_url=self._root.url)
            log = open_log(self._root, storage.log, target, trusted)
        if storage.encryption is not None:
            keyring = open_keyring(self._key_provider)
            check_keys(storage.encryption, keyring)
            is_shared = log is main
            main = EncryptedStore(main, keyring, facts.job_id, self._tokens)
            log = main if is_shared else EncryptedStore(log, keyring, facts.job_id, self._tokens)
        return _Stores(main, log)


@contextmanager
def _errors_by_name(name: str) -> Generator[None]:
    """Make errors about a shared object, or another object of its job, use the names of the job that reads it."""
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
