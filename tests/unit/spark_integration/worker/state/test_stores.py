"""The stores of one state worker: what they share, and what of the local disk is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.state_worker_setup import filled
from varvite.changelog.restore.restore import RestoreTarget
from varvite.changelog.working_stores.options import BackendSettings, MemoryShare
from varvite.spark_integration.messages.protocol import OperatorRequest
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

TARGET = RestoreTarget(operator="op", key_type="1:string", low=0, high=4)
MIB = 1 << 20


def request(backend: str = "rocksdb", **settings: Any) -> OperatorRequest:
    return filled(OperatorRequest, backend=backend, backend_options=BackendSettings(**settings))


def managed(size_bytes: int) -> OperatorRequest:
    return request(rocksdb={"background_jobs": 3}, memory=MemoryShare(size_bytes, 0.5, 2))


def test_the_stores_of_a_process_share_one_memory_until_its_size_changes() -> None:
    stores = WorkingStores()
    first, second = (stores.rocksdb_options(managed(8 * MIB)) for _ in range(2))
    assert first.memory is not None
    assert first.memory is second.memory
    assert first.background_jobs == 3
    assert stores.rocksdb_options(managed(16 * MIB)).memory is not first.memory
    assert stores.rocksdb_options(request(rocksdb={"background_jobs": 3})).memory is None
    with pytest.raises(InvalidRequestError, match="too little"):
        stores.rocksdb_options(managed(MIB))


def test_only_rocksdb_goes_on_with_what_is_on_the_disk(tmp_path: Path) -> None:
    stores, directory = WorkingStores(), tmp_path / "store"
    assert stores.open_local(request(), TARGET, directory) is None
    directory.mkdir()
    for backend in ("hashmap", "examples.sqlite_store:SQLiteStore"):
        assert stores.open_local(request(backend), TARGET, directory) is None
    opened = stores.open_local(managed(8 * MIB), TARGET, directory)
    assert opened is not None
    opened.close()
    (directory / "CURRENT").write_text("damaged\n")
    assert stores.open_local(managed(8 * MIB), TARGET, directory) is None
