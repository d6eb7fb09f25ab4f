"""Storage of the simulated jobs: encryption, and the place of their logs.

A log that is elsewhere is a storage of its own: on the same disk, but under another root, and with other faults on each
process's way to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.simulation.system import threads
from tests.simulation.system.store import Disk, SimulatedStore
from tests.stores.key_vault import KEYS, Vault
from varvite.storage.format import layout
from varvite.storage.job.log_store import is_log
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed
from varvite.storage.object_stores.prefixed import PrefixedStore

LOG_ROOT: Final = "log"
KEY_PROVIDER: Final = f"{__name__}:RotatedKeys"
ROTATED_S: Final = 60.0
"""The time from which new objects get another key; who has opened the job before goes on with the old one."""


class RotatedKeys(Vault):
    """The key provider of all processes."""

    def current_key(self) -> Any:
        return KEYS["2025" if threads.scheduler().now_s < ROTATED_S else "2026"]


class Stored(NamedTuple):
    """Settings of a job's configuration."""

    encrypted: bool
    log_elsewhere: bool

    def settings(self) -> dict[str, Any]:
        """Fields of the job's configuration."""
        return {
            "encryption_key_provider": KEY_PROVIDER if self.encrypted else None,
            "changelog_base_path": f"{Disk.url}/{LOG_ROOT}" if self.log_elsewhere else None,
        }


def log_storage(store_of: Callable[[Any], SimulatedStore]) -> Callable[[ObjectStore, str], ObjectStore]:
    """The replacement of `open_like`: the log storage as whoever has opened the main one reaches it."""

    def opened(root: ObjectStore, _url: str) -> ObjectStore:
        return PrefixedStore(store_of(root.process) if isinstance(root, SimulatedStore) else root, LOG_ROOT)

    return opened


class StoredNames:
    """Objects of a job on the disk; checks that they are stored as its record says.

    Args:
        job: The job's name.
        store: Its objects.
        fail: Called with what is wrong.
    """

    def __init__(self, job: str, store: JobStore, fail: Callable[[str], Any]) -> None:
        self._job = job
        self._store = store
        self._fail = fail
        self._log = ""
        """Before names of log data, if that is elsewhere."""
        self._encrypted = False

    def own(self, name: str) -> str | None:
        """The object's name in the job, from that on the disk; None if it is another's."""
        if self._log and name.startswith(self._log):
            return name.removeprefix(self._log)
        job, _, own = name.partition("/")
        return own if job == self._job else None

    def on_disk(self, name: str) -> str:
        """The other way round; the object need not be there."""
        return f"{self._log if self._log and is_log(name) else f'{self._job}/'}{name}"

    def put(self, name: str, own: str, data: bytes) -> None:
        """An object of the job was written."""
        if own == layout.JOB:
            record = read_job(self._store)
            if record.storage is not None:
                self._encrypted = record.storage.encryption is not None
                self._log = f"{LOG_ROOT}/{record.job_id}/" if record.storage.log is not None else ""
        elif self._encrypted and not is_sealed(data):
            self._fail(f"{name} is not encrypted, and the job is")
        elif name != self.on_disk(own):
            self._fail(f"{own} is written to {name}, its place is {self.on_disk(own)}")
