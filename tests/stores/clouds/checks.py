"""Checks of a store that hold for every cloud."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.forking import FORKING, run_forking
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.object_stores.remote.store import RemoteStore
from varvite.storage.transfer.claim import Claim, claim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.stores.clouds.answering_proxy import AnsweringProxy

MINE = "a" * 32


def check_races(location: str, options: Mapping[str, Any]) -> None:
    """Eight stores write the same object, 200 times; one wins each time, and its bytes are there."""
    stores = [RemoteStore(location, options) for _ in range(8)]
    with ThreadPoolExecutor(len(stores)) as pool:
        for number in range(200):
            start = threading.Barrier(len(stores))

            def run(me: int, number: int = number, start: threading.Barrier = start) -> bool:
                start.wait()
                return stores[me].put_if_absent(f"chain/{number}", b"%d" % me)

            winners = [me for me, won in enumerate(pool.map(run, range(len(stores)))) if won]
            assert len(winners) == 1
            assert stores[0].get(f"chain/{number}") == b"%d" % winners[0]


def check_unclear_write(store: RemoteStore, proxy: AnsweringProxy, method: str, status: int, reason: str) -> None:
    """A write that the server did, and answered otherwise, settles as won."""
    proxy.answers = [(method, status, reason, True)]
    assert claim(store, "chain/1", MINE.encode(), MINE, SystemClock()) == Claim(won=True, body=None)
    assert store.get("chain/1") == MINE.encode()


def check_refusals(
    store: RemoteStore, proxy: AnsweringProxy, method: str, status: int, reason: str, advice: str
) -> None:
    """Each call says what to do about an answer that trying again cannot cure; `method`: of writes."""
    for sent, call in (
        ("GET", lambda: store.get("warm/up")),
        ("GET", lambda: store.list("")),
        (method, lambda: store.put("a", b"x")),
        (method, lambda: store.put_if_absent("b", b"x")),
        ("DELETE", lambda: store.delete(["warm/up", "b"])),
    ):
        proxy.answers = [(sent, status, reason, False)]
        with pytest.raises(InvalidRequestError, match=advice):
            call()


def check_nobody_listens(store: RemoteStore) -> None:
    """Reads did not happen, writes may have."""
    with pytest.raises(DidNotHappenError, match="no answer"):
        store.get("a")
    with pytest.raises(MayHaveHappenedError):
        store.put_if_absent("a", b"")


def check_forks(location: str, options: Mapping[str, Any], program: str = FORKING) -> None:
    """A forked child uses the store, or as the program says, and so does its parent."""
    done = run_forking(program, location, options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['child', 'parent/after', 'parent/before']"
