from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from varvite.materializer.resources.interruptible_store import InterruptibleStore
from varvite.materializer.resources.stop_signal import Stopped, StopSignal, stop_on_signals, stop_with_parent
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.prepared_object import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS: dict[str, Callable[[ObjectStore, Path], Any]] = {
    "get": lambda store, _: store.get("a"),
    "get_range": lambda store, _: store.get_range("a", 0, 1),
    "put": lambda store, _: store.put("b", b"1"),
    "put_if_absent": lambda store, _: store.put_if_absent("b", b"1"),
    "prepare": lambda store, _: prepare(store, "b", b"1").put(),
    "list": lambda store, _: store.list(""),
    "delete": lambda store, _: store.delete(["a"]),
    "put_file": lambda store, path: store.put_file("b", path),
    "get_file": lambda store, path: store.get_file("a", path),
    "link_file": lambda store, path: store.link_file("a", path),
}


@pytest.fixture
def signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])


@pytest.mark.parametrize("name", CALLS)
def test_no_call_reaches_the_storage_after_the_stop(name: str, tmp_path: Path) -> None:
    inner, stop = MemoryStore(), StopSignal()
    inner.put("a", b"xyz")
    store = InterruptibleStore(inner, stop)
    assert isinstance(store, ObjectStore)
    (tmp_path / "file").write_bytes(b"1")
    CALLS[name](store, tmp_path / "file")
    before = [(meta.name, inner.get(meta.name)) for meta in inner.list("")]
    stop.set()
    with pytest.raises(Stopped):
        CALLS[name](store, tmp_path / "file")
    assert [(meta.name, inner.get(meta.name)) for meta in inner.list("")] == before


def test_what_was_prepared_before_the_stop_is_not_sent_after_it() -> None:
    inner, stop = MemoryStore(), StopSignal()
    prepared = prepare(InterruptibleStore(inner, stop), "b", b"1")
    stop.set()
    for send in (prepared.put, prepared.put_if_absent):
        with pytest.raises(Stopped):
            send()
    assert inner.list("") == []


def test_waiting_ends_when_asked_to_stop() -> None:
    stop = StopSignal()
    assert not stop.wait(0)
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    assert stop.wait(60)
    assert stop.is_set
    timer.join()


def test_waiting_may_be_longer_than_the_system_can_wait() -> None:
    """`--poll 1000d` means to look hardly ever."""
    stop = StopSignal()
    threading.Timer(0.1, stop.set).start()
    assert stop.wait(1000 * 86_400)


def test_waiting_works_in_a_process_with_many_open_files() -> None:
    """`select` takes no descriptor above 1023."""
    with ExitStack() as files:
        descriptors = [files.enter_context(Path(os.devnull).open("rb")).fileno() for _ in range(1100)]
        assert max(descriptors) > 1023
        stop = StopSignal()
        assert not stop.wait(0)
        stop.set()
        assert stop.wait(None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_even_while_waiting(signals: None, number: signal.Signals) -> None:
    stop = StopSignal()
    stop_on_signals(stop)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), number))
    timer.start()
    assert stop.wait(60)
    timer.join()


def test_a_parent_that_has_ended_already_asks_to_stop() -> None:
    stop = StopSignal()
    stop_with_parent(stop, 2**22 + 1)
    assert stop.wait(60)


def test_a_living_parent_does_not_ask_to_stop() -> None:
    stop = StopSignal()
    stop_with_parent(stop, os.getppid())
    assert not stop.wait(0.2)
