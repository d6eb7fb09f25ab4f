from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.manual_clock import ManualClock
from varvite.materializer.resources.bandwidth import ThrottledReads, TokenBucket
from varvite.materializer.resources.stop_signal import Stopped, StopSignal
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


def test_the_rate_is_kept_over_time_after_a_burst_of_one_second() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1_000, clock, StopSignal())
    bucket.take(1_000)
    assert clock.monotonic_s() == 0
    for _ in range(10):
        bucket.take(500)
    assert clock.monotonic_s() == pytest.approx(5.0)
    bucket.take(4_000)
    assert clock.monotonic_s() == pytest.approx(9.0)


def test_a_quiet_time_saves_one_second_and_no_more() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1_000, clock, StopSignal())
    clock.advance(100)
    bucket.take(3_000)
    assert clock.monotonic_s() == pytest.approx(102.0)


def test_waiting_ends_when_asked_to_stop() -> None:
    stop = StopSignal()
    bucket = TokenBucket(1_000, ManualClock(), stop)
    stop.set()
    bucket.take(1_000)
    with pytest.raises(Stopped):
        bucket.take(1)


def test_reads_are_paid_for_and_everything_is_passed_on(tmp_path: Path) -> None:
    clock, inner = ManualClock(), MemoryStore()
    store = ThrottledReads(inner, TokenBucket(100, clock, StopSignal()))
    assert isinstance(store, ObjectStore)
    assert store.url == inner.url
    (tmp_path / "file").write_bytes(b"f" * 300)
    store.put("a", b"a" * 300)
    assert store.put_if_absent("b", b"b")
    store.put_file("c", tmp_path / "file")
    assert [meta.name for meta in store.list("")] == ["a", "b", "c"]
    assert clock.monotonic_s() == 0
    assert store.get("a") == b"a" * 300
    assert clock.monotonic_s() == pytest.approx(2.0)
    assert store.get_range("a", 100, 100) == b"a" * 100
    store.get_file("c", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"f" * 300
    assert clock.monotonic_s() == pytest.approx(6.0)
    store.delete(["a"])
    assert [meta.name for meta in inner.list("")] == ["b", "c"]
