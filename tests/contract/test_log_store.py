"""The contract of `LogStore`, run by every implementation."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from examples.sqlite_log import open_log as open_sqlite_log
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.job.log_store import LogObjects, LogStore, LogTarget, SimpleLogStore, check_log
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, open_keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta

JOB_ID = "0123456789abcdef0123456789abcdef"
NAMES = tuple(layout.segment(slot, "op/ä", 1, "f" * 32, 0) for slot in (3, 4, 11))


@pytest.fixture(
    params=["object store", "memory", "sqlite", "encrypted sqlite", pytest.param("s3", marks=pytest.mark.s3)]
)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """Every implementation."""
    if request.param == "object store":
        return PrefixedStore(LocalStore(tmp_path / "log"), JOB_ID)
    if request.param == "memory":
        return MemoryStore()
    if request.param == "s3":
        server = request.getfixturevalue("moto_server")
        return PrefixedStore(open_store(server.new_location(), server.storage_options()), JOB_ID)
    made = open_sqlite_log(LogTarget(JOB_ID, "job", f"file://{tmp_path}/state"))
    if request.param == "sqlite":
        return made
    keys = open_keyring("environment", {KEY_VARIABLE: "ab" * 32})
    return EncryptedStore(LogObjects(made), keys, JOB_ID, SystemTokens(), chunk_bytes=100)


def names(log: LogStore, prefix: str, start_after: str = "") -> list[str]:
    return [meta.name for meta in log.list(prefix, start_after=start_after)]


def test_it_is_a_log_store(log: LogStore) -> None:
    assert isinstance(log, LogStore)
    assert "://" in log.url


def test_what_was_put_is_read_whole_and_by_ranges(log: LogStore) -> None:
    data = random.Random(1).randbytes(10_000)
    for body in (data, b""):
        log.put(NAMES[0], body)
        assert log.get(NAMES[0]) == body
    log.put(NAMES[0], data)
    assert log.get_range(NAMES[0], 990, 7000) == data[990:7990]
    assert log.get_range(NAMES[0], 10_000, 0) == b""
    for offset, length in ((9_999, 2), (10_001, 0)):
        with pytest.raises(CorruptDataError):
            log.get_range(NAMES[0], offset, length)
    with pytest.raises(InvalidRequestError):
        log.get_range(NAMES[0], -1, 1)


def test_putting_the_same_again_is_harmless(log: LogStore) -> None:
    """An upload that is slow is joined by a second attempt."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: log.put(NAMES[0], b"x" * 1000), range(8)))
    assert log.get(NAMES[0]) == b"x" * 1000
    assert names(log, layout.SEGMENTS) == [NAMES[0]]


def test_a_listing_is_in_order_with_sizes_and_sees_everything_at_once(log: LogStore) -> None:
    assert names(log, layout.SEGMENTS) == []
    for number, name in enumerate(reversed(NAMES)):
        log.put(name, b"x" * number)
    log.put(layout.pack(4, "f" * 32), b"pack")
    assert [meta[:2] for meta in log.list(layout.SEGMENTS)] == [(NAMES[0], 2), (NAMES[1], 1), (NAMES[2], 0)]
    assert names(log, layout.SEGMENTS, start_after=NAMES[0]) == [NAMES[1], NAMES[2]]
    assert len(names(log, "")) == 4
    log.delete([NAMES[1], layout.segment(9, "op", 0, "none", 0)])
    assert names(log, layout.SEGMENTS) == [NAMES[0], NAMES[2]]
    log.delete(iter([NAMES[0]]))
    assert names(log, layout.SEGMENTS) == [NAMES[2]]


def test_what_is_missing_is_named(log: LogStore, tmp_path: Path) -> None:
    asks = (log.get, lambda n: log.get_range(n, 0, 1), lambda n: log.get_file(n, tmp_path / "out"))
    for ask in asks:
        with pytest.raises(MissingObjectError) as raised:
            ask(NAMES[0])
        assert str(raised.value.context["object_name"]).endswith(NAMES[0])
    assert not (tmp_path / "out").exists()


def test_files_go_in_and_out(log: LogStore, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(300_000)
    (tmp_path / "in").write_bytes(data)
    log.put_file(NAMES[0], tmp_path / "in")
    log.get_file(NAMES[0], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data == log.get(NAMES[0])
    with pytest.raises(InvalidRequestError):
        log.put_file(NAMES[1], tmp_path / "none")


def test_names_are_checked(log: LogStore) -> None:
    for name in ("", "../a", "a/", "a//b"):
        with pytest.raises(InvalidRequestError):
            log.put(name, b"x")


def test_the_preflight_passes_and_leaves_nothing(log: LogStore) -> None:
    objects = log if hasattr(log, "put_if_absent") else LogObjects(log)
    check_log(objects, "a" * 32)  # type: ignore[arg-type]
    assert names(log, "") == []


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
