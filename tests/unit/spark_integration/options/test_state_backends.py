"""State backends as values: what they set, what they refuse, and what the deprecated ones map to."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

from examples.sqlite_store import SQLiteStore
from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.options.checkpoint_storage import (
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from varvite.spark_integration.options.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    StateBackend,
)
from varvite.storage.errors import InvalidRequestError

SQLITE = "examples.sqlite_store:SQLiteStore"


def deprecated(make: Any, *arguments: Any, **named: Any) -> Any:
    """Make one; it must warn, at this very line."""
    with pytest.warns(DeprecationWarning, match="is deprecated; use ") as caught:
        made = make(*arguments, **named)
    assert caught[0].filename == __file__
    return made


def rocksdb_with_settings() -> EmbeddedRocksDBStateBackend:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_number_of_transfer_threads(6)
    return backend


def test_every_backend_sets_options_that_exist_and_survives_a_pickle() -> None:
    backends: list[StateBackend] = [
        HashMapStateBackend(),
        rocksdb_with_settings(),
        CustomStateBackend(SQLITE, {"cache-mb": 4}),
        CustomStateBackend(SQLiteStore),
        deprecated(MemoryStateBackend),
        deprecated(FsStateBackend, "file:///state"),
        deprecated(RocksDBStateBackend, "file:///state"),
    ]
    for backend in backends:
        copied = pickle.loads(pickle.dumps(backend))
        assert copied == backend
        assert copied.configuration() == backend.configuration()
        assert set(OPTIONS.read("code", backend.configuration()).values) == set(backend.configuration())


def test_what_is_set_on_the_rocksdb_backend_are_options() -> None:
    backend = rocksdb_with_settings()
    assert backend.configuration() == {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.predefined-options": PredefinedOptions.FLASH_SSD_OPTIMIZED,
        "state.changelog.dstl.dfs.upload.num-threads": 6,
        "execution.state-recovery.download.num-threads": 6,
    }
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_number_of_transfer_threads() == 6
    fresh = EmbeddedRocksDBStateBackend()
    assert (fresh.get_predefined_options(), fresh.get_number_of_transfer_threads()) == (PredefinedOptions.DEFAULT, None)
    assert (fresh.get_db_storage_paths(), fresh.get_options()) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda backend: backend.set_predefined_options("FLASH"), "PredefinedOptions"),
        (lambda backend: backend.set_number_of_transfer_threads(0), "at least 1"),
    ],
    ids=["options", "threads"],
)
def test_what_has_no_place_here_is_an_error_that_says_what_to_do(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        wrong(EmbeddedRocksDBStateBackend())


def test_what_has_no_effect_is_warned_of_and_answered() -> None:
    backend = EmbeddedRocksDBStateBackend()
    with pytest.warns(UserWarning, match=r"spark\.local\.dir") as caught:
        backend.set_db_storage_paths("/fast", "/other")
    with pytest.warns(UserWarning, match=r"state\.backend\.rocksdb"):
        backend.set_options("org.example.Factory")
    assert caught[0].filename == __file__
    assert (backend.get_db_storage_paths(), backend.get_options()) == (["/fast", "/other"], "org.example.Factory")
    assert HashMapStateBackend(None) == HashMapStateBackend()


def test_a_custom_backend_is_a_name_and_text_options() -> None:
    by_class = CustomStateBackend(SQLiteStore, {"cache-mb": 4})
    assert by_class.configuration() == {
        "state.backend.type": SQLITE,
        "state.backend.custom.options": {"cache-mb": "4"},
    }
    assert CustomStateBackend(SQLITE).configuration()["state.backend.type"] == SQLITE


def _in_a_function() -> Any:
    class Inner(SQLiteStore):
        pass

    return Inner


@pytest.mark.parametrize(
    "factory",
    [_in_a_function(), lambda target: None, "SQLiteStore", "__main__:Store", 5],
    ids=["local class", "lambda", "no module", "main", "number"],
)
def test_a_factory_that_workers_could_not_import_is_refused_at_once(factory: Any) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be imported"):
        CustomStateBackend(factory)


def test_deprecated_backends_are_todays_with_a_checkpoint_storage() -> None:
    memory = deprecated(MemoryStateBackend)
    assert memory.configuration() == HashMapStateBackend().configuration()
    assert memory.checkpoint_storage() == JobManagerCheckpointStorage()
    kept = deprecated(MemoryStateBackend, "file:///state")
    assert kept.checkpoint_storage().location() == "file:///state"
    files = deprecated(FsStateBackend, "s3://bucket/state")
    assert files.configuration() == HashMapStateBackend().configuration()
    assert files.checkpoint_storage() == FileSystemCheckpointStorage("s3://bucket/state")
    assert files.get_checkpoint_path() == "s3://bucket/state"
    assert deprecated(FsStateBackend).checkpoint_storage() is None
    rocksdb = deprecated(RocksDBStateBackend, "s3://bucket/state", True)
    rocksdb.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED)
    assert rocksdb.configuration()["state.backend.type"] == "rocksdb"
    assert rocksdb.checkpoint_storage() == FileSystemCheckpointStorage("s3://bucket/state")
    assert deprecated(RocksDBStateBackend, None, None, files).checkpoint_storage() == files.checkpoint_storage()


def test_arguments_without_effect_are_warned_of() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FsStateBackend("file:///state", file_state_size_threshold=1024, using_asynchronous_snapshots=True)
        MemoryStateBackend(max_state_size=5 << 20)
    useless = [(str(w.message).split()[0], w.filename) for w in caught if w.category is UserWarning]
    names = ["file_state_size_threshold", "using_asynchronous_snapshots", "max_state_size"]
    assert useless == [(name, __file__) for name in names]
