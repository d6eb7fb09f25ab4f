"""The check of a storage before a job depends on it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.stores.manual_clock import ManualClock
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.job.preflight import PREFLIGHT, check_store
from varvite.storage.object_stores.contract import truncated
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore


class Overwriting(MemoryStore):
    """Like the S3 clones that ignore If-None-Match."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.put(name, data)
        return True


class Claiming(MemoryStore):
    """Says "created" for every write and keeps the first."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        super().put_if_absent(name, data)
        return True


class Refusing(MemoryStore):
    """Says "exists" and overwrites."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.put(name, data)
        return False


class Racy(MemoryStore):
    """Looks first and writes then; the first object of all is created as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self._looked = threading.Barrier(4)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if not self.list(PREFLIGHT) or self.list(name):
            return super().put_if_absent(name, data)
        with suppress(threading.BrokenBarrierError):
            self._looked.wait(10)
        self.put(name, data)
        return True


class Blind(MemoryStore):
    """A listing that lags behind."""

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        return []


class Undying(MemoryStore):
    """Deletes nothing."""

    def delete(self, names: Iterable[str]) -> None:
        list(names)


class WholeRanges(MemoryStore):
    """Answers every range with the beginning."""

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self.get(name)[:length]


class HalfRanges(MemoryStore):
    """Finds every range to be cut off."""

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        raise truncated(name, offset, length, length // 2)


class Down(MemoryStore):
    """Answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        self.calls += 1
        raise DidNotHappenError("no answer")


class Full(MemoryStore):
    """Takes nothing."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        raise MayHaveHappenedError("no room")


def check(store: ObjectStore) -> None:
    check_store(store, SystemTokens(), ManualClock())


def test_a_good_store_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path / "store")):
        store.put("there/before", b"x")
        check(store)
        assert [meta.name for meta in store.list("")] == ["there/before"]


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (Overwriting, "overwrites an existing object"),
        (Claiming, "overwrites an existing object"),
        (Refusing, "overwrites an existing object"),
        (Racy, "4 of 4 threads"),
        (Blind, "does not list"),
        (Undying, "still returns an object that was deleted"),
        (WholeRanges, "wrong bytes for a range"),
        (HalfRanges, "does not return a range of what was just written"),
    ],
)
def test_a_store_that_would_lose_state_is_refused(store: type[MemoryStore], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check(store())


def test_the_check_removes_its_object_when_it_refuses() -> None:
    store = Overwriting()
    with pytest.raises(InvalidRequestError):
        check(store)
    assert store.list(PREFLIGHT) == []


def test_a_store_that_does_not_answer_is_found_by_one_call() -> None:
    store = Down()
    with pytest.raises(DidNotHappenError, match=r"nothing was started.*no answer"):
        check(store)
    assert store.calls == 1


def test_a_store_that_takes_nothing_did_not_start_the_job() -> None:
    with pytest.raises(DidNotHappenError, match=r"nothing was started.*no room"):
        check(Full())
