"""The working stores of one state worker: which kind there is, how one is opened, and how one is restored.

Invariants: I5 (every kind is restored from the same snapshot and log), I9 (what is on the local disk is used only if it
is what it should be), I10 (all RocksDB stores of the process share one budget).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from varvite.changelog.restore.copies import open_copy
from varvite.changelog.restore.restore import can_catch_up, catch_up, restore
from varvite.changelog.working_stores.custom import copy_store, open_custom_store
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.memory import SharedMemory
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.table_store import StoreTarget
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView
    from varvite.changelog.restore.restore import RestoreTarget
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.changelog.working_stores.options import MemoryShare
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.spark_integration.messages.protocol import OperatorRequest


class WorkingStores:
    """Opens the stores that requests describe; used by the main thread of a state worker."""

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None
        self._memory_of: MemoryShare | None = None

    def open_local(self, request: OperatorRequest, target: RestoreTarget, directory: Path) -> WorkingStore | None:
        """The store that an earlier process has left in the local directory, if it can be used."""
        return self.open_copy(request, target, directory) if request.backend == "rocksdb" else None

    def open_copy(self, request: OperatorRequest, target: RestoreTarget, directory: Path) -> RocksDBStore | None:
        """The local copy of the state in that directory, whatever the backend; None if there is none of use."""
        return open_copy(directory, target, self._copy_options(request))

    def restore(
        self, request: OperatorRequest, target: RestoreTarget, view: LineView, reader: ChainReader, directory: Path
    ) -> WorkingStore:
        """A store at the view's commit.

        Args:
            request: Says the kind.
            target: Whose state.
            view: The commit.
            reader: Of the job's chain.
            directory: For the store's files; what is there is replaced.

        Raises:
            VarviteError: the state cannot be restored, or a custom store not be made.
        """
        if request.backend == "rocksdb":
            return self.restore_rocksdb(request, target, view, reader, directory)
        shutil.rmtree(directory, ignore_errors=True)
        if view.base == ORIGIN:
            return _new_store(request, target, directory)
        if can_catch_up(view, target, ORIGIN):  # there is no base, all of the state is in the log
            return self._replayed(request, target, view, reader, directory)
        # Through a RocksDB store that is thrown away: tiles are its files.
        passing = directory.with_name(f"{directory.name}.passing")
        release = partial(shutil.rmtree, passing, ignore_errors=True)
        try:
            source = self.restore_rocksdb(request, target, view, reader, passing)
        except BaseException:
            release()
            raise
        return self.filled(request, target, source, directory, release)

    def _replayed(
        self, request: OperatorRequest, target: RestoreTarget, view: LineView, reader: ChainReader, directory: Path
    ) -> WorkingStore:
        store = _new_store(request, target, directory)
        try:
            catch_up(view, target, store, reader, request.downloads)
        except BaseException:
            store.close()
            raise
        return store

    def restore_rocksdb(
        self,
        request: OperatorRequest,
        target: RestoreTarget,
        view: LineView,
        reader: ChainReader,
        directory: Path,
        *,
        reuse: Sequence[Path] = (),
    ) -> RocksDBStore:
        """A RocksDB store at the view's commit, whatever the backend; see `varvite.changelog.restore.restore`."""
        options = self._copy_options(request)
        return restore(view, target, reader.store, directory, options, downloads=request.downloads, reuse=reuse)

    def filled(
        self,
        request: OperatorRequest,
        target: RestoreTarget,
        source: RocksDBStore,
        directory: Path,
        release: Callable[[], object] = lambda: None,
    ) -> WorkingStore:
        """A store of the request's kind with the state of a RocksDB store, which is closed when it is needed no more.

        A hashmap store takes the state over from it lazily; any other kind does so at once.

        Args:
            request: Says the kind.
            target: Whose state.
            source: Must not be used by anybody else from now on.
            directory: For the new store's files.
            release: Gives the source's files up; called after it was closed.

        Raises:
            VarviteError: a custom store cannot be store.
        """

        def close() -> None:
            try:
                source.close()
            finally:
                release()

        if request.backend == "hashmap":
            return _filled_later(target, source, close)
        try:
            store = _new_store(request, target, directory)
            try:
                if source.version != ORIGIN:
                    copy_store(source, store)
            except BaseException:
                store.close()
                raise
            return store
        finally:
            close()

    def _copy_options(self, request: OperatorRequest) -> RocksDBOptions | None:
        """Only the RocksDB backend's options are RocksDB's."""
        return self.rocksdb_options(request) if request.backend == "rocksdb" else None

    def rocksdb_options(self, request: OperatorRequest) -> RocksDBOptions:
        """Options of the request's RocksDB stores, with the memory that this process's stores share."""
        settings = request.backend_options
        options, share = RocksDBOptions(**settings.rocksdb), settings.memory
        if share is None:
            return options
        if self._memory is None or self._memory_of != share:
            self._memory = SharedMemory(share.size_bytes, share.write_buffer_ratio, share.stores)
            self._memory_of = share
        return replace(options, memory=self._memory)


def _filled_later(target: RestoreTarget, source: RocksDBStore, close: Callable[[], None]) -> HashMapStore:
    """A hashmap store that takes the state over from a RocksDB store when it needs it."""
    try:
        store = _new_hashmap_store(target)
        store.load_later(source, close)
    except BaseException:
        close()
        raise
    return store


def _new_hashmap_store(target: RestoreTarget) -> HashMapStore:
    return HashMapStore(operator=target.operator, key_type=target.key_type, low=target.low, high=target.high)


def _new_store(request: OperatorRequest, target: RestoreTarget, directory: Path) -> WorkingStore:
    """An empty store that is not RocksDB."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    if request.backend == "hashmap":
        return _new_hashmap_store(target)
    store_target = StoreTarget(
        operator=target.operator,
        key_type=target.key_type,
        low=target.low,
        high=target.high,
        directory=directory,
        options=request.backend_options.factory,
    )
    return open_custom_store(request.backend, store_target)
