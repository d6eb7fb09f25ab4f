"""The working stores of one state worker: which kind there is, how one is opened, and how one is restored.

Invariants: I5 (every kind is restored from the same snapshot and log), I9 (what is on the local disk is used only if it
is what it should be), I10 (all RocksDB stores of the process share one budget).
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from varve.changelog.custom_store import copy_store, open_custom_store
from varve.changelog.hashmap_store import HashMapStore
from varve.changelog.restore import RestoreTarget, restore_store
from varve.changelog.rocksdb_memory import SharedMemory
from varve.changelog.rocksdb_options import RocksDBOptions
from varve.changelog.rocksdb_store import RocksDBStore
from varve.changelog.table_store import StoreTarget
from varve.storage.errors import VarveError
from varve.storage.records import ORIGIN

if TYPE_CHECKING:
    from pathlib import Path

    from varve.changelog.working_store import WorkingStore
    from varve.spark_integration.protocol import OperatorRequest
    from varve.storage.line_view import LineView
    from varve.storage.object_store import ObjectStore

_log: Final = logging.getLogger(__name__)


class WorkingStores:
    """Opens stores as requests say; used by the main thread of a state worker."""

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None
        self._memory_of: tuple[int, float, int] | None = None

    def open_local(self, request: OperatorRequest, target: RestoreTarget, directory: Path) -> WorkingStore | None:
        """What an earlier process left in the local directory, if it can be used."""
        if request.backend != "rocksdb" or not directory.exists():
            return None
        try:
            return RocksDBStore.open(
                directory, target.operator, target.key_type, target.low, target.high, self.rocksdb_options(request)
            )
        except VarveError as error:
            _log.warning("the local state in %s is not used: %s", directory, error)
            return None

    def restore(
        self, request: OperatorRequest, target: RestoreTarget, view: LineView, store: ObjectStore, directory: Path
    ) -> WorkingStore:
        """A store at the view's commit.

        Args:
            request: Says the kind.
            target: Whose state.
            view: The commit.
            store: The job's objects.
            directory: For the store's files; must not exist.

        Raises:
            VarveError: the state cannot be restored, or a custom store not be made.
        """
        scratch = directory.with_name(f"{directory.name}.restore")
        shutil.rmtree(scratch, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            if request.backend == "rocksdb":
                return restore_store(view, target, store, directory, scratch, self.rocksdb_options(request))
            made = _new_store(request, target, directory)
            try:
                _fill(made, target, view, store, scratch)
            except BaseException:
                made.close()
                raise
            return made
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def rocksdb_options(self, request: OperatorRequest) -> RocksDBOptions:
        """Options of the request's RocksDB stores, with the memory that this process's stores share."""
        given = request.backend_options
        options = RocksDBOptions(**given.get("options", {}))
        if "memory_bytes" not in given:
            return options
        size = given["memory_bytes"], given["write_buffer_ratio"], given["stores"]
        if self._memory is None or self._memory_of != size:
            self._memory, self._memory_of = SharedMemory(*size), size
        return replace(options, memory=self._memory)


def _new_store(request: OperatorRequest, target: RestoreTarget, directory: Path) -> WorkingStore:
    """An empty store that is not RocksDB."""
    if request.backend == "hashmap":
        return HashMapStore(operator=target.operator, key_type=target.key_type, low=target.low, high=target.high)
    wanted = StoreTarget(
        operator=target.operator,
        key_type=target.key_type,
        low=target.low,
        high=target.high,
        directory=directory,
        options=request.backend_options.get("options", {}),
    )
    return open_custom_store(request.backend, wanted)


def _fill(made: WorkingStore, target: RestoreTarget, view: LineView, store: ObjectStore, scratch: Path) -> None:
    """Bring an empty store to the view's commit, through a RocksDB store that is thrown away: tiles are its files."""
    if view.base == ORIGIN:
        return
    scratch.mkdir(parents=True)
    source = restore_store(view, target, store, scratch / "store", scratch)
    try:
        if isinstance(made, HashMapStore):
            made.load_from(source)
        else:
            copy_store(source, made)
    finally:
        source.close()
