"""The contract of `LogStore`, for every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.sqlite_log import open_log as open_sqlite_log
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.log_store import LogObjects, LogStore, LogTarget, SimpleLogStore, check_log
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, open_keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.testing.contracts import LogStoreContract

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta

JOB_ID = "0123456789abcdef0123456789abcdef"


class TestLogStore(LogStoreContract):
    @pytest.fixture(
        params=["object store", "memory", "sqlite", "encrypted sqlite", pytest.param("s3", marks=pytest.mark.s3)]
    )
    def log(self, request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
        if request.param == "object store":
            return PrefixedStore(LocalStore(tmp_path / "log"), JOB_ID)
        if request.param == "memory":
            return MemoryStore()
        if request.param == "s3":
            server = request.getfixturevalue("moto_server")
            return PrefixedStore(open_store(server.new_location(), server.storage_options()), JOB_ID)
        sqlite = open_sqlite_log(LogTarget(JOB_ID, "job", f"file://{tmp_path}/state"))
        if request.param == "sqlite":
            return sqlite
        keys = open_keyring("environment", {KEY_VARIABLE: "ab" * 32})
        return EncryptedStore(LogObjects(sqlite), keys, JOB_ID, SystemTokens(), chunk_bytes=100)


class Forgetful(SimpleLogStore):
    """Keeps nothing, or everything."""

    url = "forgetful://"

    def __init__(self, *, keeps: bool) -> None:
        self._store = MemoryStore()
        self._keeps = keeps

    def get(self, name: str) -> bytes:
        return self._store.get(name)

    def put(self, name: str, data: bytes) -> None:
        self._store.put(name, data)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        return self._store.list(prefix, start_after=start_after) if self._keeps else []

    def delete(self, names) -> None:  # noqa: ANN001
        if not self._keeps:
            self._store.delete(names)


@pytest.mark.parametrize(("keeps", "message"), [(False, r"lists \[\]"), (True, "keeps it when it is deleted")])
def test_the_preflight_refuses_what_cannot_carry_a_log(*, keeps: bool, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_log(LogObjects(Forgetful(keeps=keeps)), "a" * 32)
