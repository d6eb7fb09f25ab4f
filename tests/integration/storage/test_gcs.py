"""Google Cloud Storage through gcsfs: what its contract does not ask (tests/contract/test_object_store.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.harness.servers.process import free_port
from tests.stores.clouds.answering_proxy import AnsweringProxy
from tests.stores.clouds.checks import (
    check_forks,
    check_nobody_listens,
    check_races,
    check_refusals,
    check_unclear_write,
)
from tests.stores.manual_clock import ManualClock
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError, MissingObjectError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness.servers.gcs import GcsServer

pytestmark = pytest.mark.gcs


@pytest.fixture
def proxy(gcs_server: GcsServer) -> Iterator[AnsweringProxy]:
    with AnsweringProxy(gcs_server.endpoint_url) as running:
        yield running


@pytest.fixture
def store(gcs_server: GcsServer, proxy: AnsweringProxy) -> RemoteStore:
    opened = RemoteStore(
        gcs_server.new_location(), gcs_server.storage_options(endpoint_url=proxy.url), clock=ManualClock()
    )
    opened.put("warm/up", b"before")
    proxy.seen.clear()
    return opened


def test_eight_writers_race_and_one_wins_each_time(gcs_server: GcsServer) -> None:
    check_races(gcs_server.new_location(), gcs_server.storage_options())


@pytest.mark.parametrize("size", [1000, 20 << 20], ids=["one request", "in parts"])
def test_a_body_may_look_like_the_end_of_an_upload(store: RemoteStore, tmp_path: Path, size: int) -> None:
    """gcsfs's uploads always have the same boundary: a body that has it was cut there, with success."""
    odd = b"bin\n--==0==--\ntail\r\n--==0==\r\n"
    store.put("a", odd)
    assert store.get("a") == odd
    assert store.put_if_absent("b", odd)
    assert store.get("b") == odd
    (tmp_path / "in").write_bytes(odd * (size // len(odd)))
    store.put_file("c", tmp_path / "in")
    store.get_file("c", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(503, "backendError"), (429, "rateLimitExceeded"), (403, "rateLimitExceeded"), (500, "internalError"), (0, "")],
)
def test_a_passing_answer_is_tried_again_and_only_by_the_store(
    store: RemoteStore, proxy: AnsweringProxy, status: int, reason: str
) -> None:
    proxy.answers = [("POST", status, reason, False)]
    with pytest.raises(MayHaveHappenedError):
        store.put_if_absent("a", b"x")
    if status:  # aiohttp sends a read again by itself if the connection breaks
        proxy.answers = [("GET", status, reason, False)] * 3
        with pytest.raises(DidNotHappenError):
            store.get("warm/up")
        assert proxy.seen == ["POST", "GET", "GET", "GET"]
    proxy.answers = [("POST", status, reason, False), ("GET", status, reason, False)]
    store.put("a", b"y")
    assert store.get("a") == b"y"


@pytest.mark.parametrize(("status", "reason"), [(503, "backendError"), (0, "")], ids=["503", "no reply"])
def test_a_write_without_a_clear_answer_settles_as_won(
    store: RemoteStore, proxy: AnsweringProxy, status: int, reason: str
) -> None:
    check_unclear_write(store, proxy, "POST", status, reason)


@pytest.mark.parametrize(
    ("status", "reason", "advice"),
    [
        (401, "authError", "correct key, secret or token"),
        (403, "forbidden", "grant list, read, write and delete"),
        (400, "invalid", "correct URL and storage options"),
    ],
)
def test_what_trying_again_cannot_cure_is_told_at_once(
    store: RemoteStore, proxy: AnsweringProxy, status: int, reason: str, advice: str
) -> None:
    check_refusals(store, proxy, "POST", status, reason, advice)


def test_a_missing_bucket_is_a_clear_error(gcs_server: GcsServer) -> None:
    store = open_store("gs://no-such-bucket/x", gcs_server.storage_options())
    for call in (lambda: store.list(""), lambda: check_store(store, SystemTokens(), SystemClock())):
        with pytest.raises(InvalidRequestError, match="bucket"):
            call()


def test_nobody_listens(gcs_server: GcsServer) -> None:
    nowhere = gcs_server.storage_options(endpoint_url=f"http://127.0.0.1:{free_port()}")
    store = RemoteStore(gcs_server.new_location(), nowhere, clock=ManualClock())
    check_nobody_listens(store)


def test_a_mistyped_option_is_named_before_a_request(gcs_server: GcsServer) -> None:
    with pytest.raises(InvalidRequestError, match=r"'tokne' is no storage option of Google.*'token'"):
        open_store("gs://bucket/x", {"tokne": "anon"})


def test_a_forked_child_uses_the_store_and_so_does_its_parent(gcs_server: GcsServer) -> None:
    check_forks(gcs_server.new_location(), gcs_server.storage_options())


def test_a_good_storage_passes_the_check(gcs_server: GcsServer) -> None:
    store = open_store(gcs_server.new_location(), gcs_server.storage_options())
    check_store(store, SystemTokens(), SystemClock())
    assert store.list("") == []
    with pytest.raises(MissingObjectError):
        store.get("a")


def test_a_storage_that_ignores_the_condition_is_refused(careless_gcs_server: GcsServer) -> None:
    store = open_store(careless_gcs_server.new_location(), careless_gcs_server.storage_options())
    with pytest.raises(InvalidRequestError, match="overwrites an existing object although told not to"):
        check_store(store, SystemTokens(), SystemClock())
