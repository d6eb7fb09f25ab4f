"""The check of a storage before a job depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.manual_clock import ManualClock
from varve.storage.clock import SystemTokens
from varve.storage.errors import DidNotHappenError, InvalidRequestError
from varve.storage.local_store import LocalStore
from varve.storage.memory_store import MemoryStore
from varve.storage.preflight import PREFLIGHT, check_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varve.storage.object_store import ObjectMeta, ObjectStore


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


class Down(MemoryStore):
    """Answers nothing."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        raise DidNotHappenError("no answer")


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
        (Blind, "does not list"),
        (Undying, "still returns an object that was deleted"),
        (WholeRanges, "wrong bytes for a range"),
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


def test_a_store_that_does_not_answer_is_a_retryable_error() -> None:
    with pytest.raises(DidNotHappenError):
        check(Down())
