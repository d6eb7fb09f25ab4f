"""Azure Blob Storage through adlfs: what its contract does not ask (tests/contract/test_object_store.py)."""

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
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.servers.azure import AzureServer

pytestmark = pytest.mark.azure


@pytest.fixture
def proxy(azure_server: AzureServer) -> Iterator[AnsweringProxy]:
    with AnsweringProxy(azure_server.endpoint_url.rpartition("/")[0]) as running:
        yield running


@pytest.fixture
def store(azure_server: AzureServer, proxy: AnsweringProxy) -> RemoteStore:
    options = azure_server.at(proxy.url).storage_options()
    opened = RemoteStore(azure_server.new_location(), options, clock=ManualClock())
    opened.put("warm/up", b"before")
    proxy.seen.clear()
    return opened


@pytest.mark.long
def test_eight_writers_race_and_one_wins_each_time(azure_server: AzureServer) -> None:
    check_races(azure_server.new_location(), azure_server.storage_options())


@pytest.mark.parametrize(
    ("status", "code"), [(503, "ServerBusy"), (500, "OperationTimedOut"), (429, "TooMany"), (0, "")]
)
def test_a_passing_answer_is_tried_again_and_only_by_the_store(
    store: RemoteStore, proxy: AnsweringProxy, status: int, code: str
) -> None:
    if status:  # aiohttp sends a request again by itself if the connection breaks
        proxy.answers = [("PUT", status, code, False)]
        with pytest.raises(MayHaveHappenedError):
            store.put_if_absent("a", b"x")
        proxy.answers = [("GET", status, code, False)] * 3
        with pytest.raises(DidNotHappenError):
            store.get("warm/up")
        assert proxy.seen == ["PUT", "GET", "GET", "GET"]
    proxy.answers = [("PUT", status, code, False), ("GET", status, code, False)]
    store.put("a", b"y")
    assert store.get("a") == b"y"


@pytest.mark.parametrize(("status", "code"), [(503, "ServerBusy"), (0, "")], ids=["503", "no reply"])
def test_a_write_without_a_clear_answer_settles_as_won(
    store: RemoteStore, proxy: AnsweringProxy, status: int, code: str
) -> None:
    check_unclear_write(store, proxy, "PUT", status, code)


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, "AuthenticationFailed", "correct key, secret or token"),
        (403, "AuthorizationPermissionMismatch", "grant list, read, write and delete"),
        (404, "ContainerNotFound", "bucket does not exist"),
        (400, "InvalidHeaderValue", "correct URL and storage options"),
    ],
)
def test_what_trying_again_cannot_cure_is_told_at_once(
    store: RemoteStore, proxy: AnsweringProxy, status: int, code: str, advice: str
) -> None:
    check_refusals(store, proxy, "PUT", status, code, advice)


def test_a_missing_container_or_a_wrong_key_is_a_clear_error(azure_server: AzureServer) -> None:
    missing = open_store("az://no-such-container/x", azure_server.storage_options())
    wrong = open_store(azure_server.new_location(), azure_server.storage_options(key="d3Jvbmc="))
    # Azurite calls a wrong signature a lack of permission; Azure calls it AuthenticationFailed.
    for store, advice in ((missing, "bucket does not exist"), (wrong, "the credentials do not permit this")):
        for call in (lambda: check_store(store, SystemTokens(), SystemClock()), lambda: store.put("a", b"x")):  # noqa: B023
            with pytest.raises(InvalidRequestError, match=advice):
                call()


def test_nobody_listens(azure_server: AzureServer) -> None:
    nowhere = azure_server.at(f"http://127.0.0.1:{free_port()}").storage_options()
    store = RemoteStore(azure_server.new_location(), nowhere, clock=ManualClock())
    check_nobody_listens(store)


def test_a_mistyped_option_is_named_before_a_request(azure_server: AzureServer) -> None:
    with pytest.raises(InvalidRequestError, match=r"'acount_key' is no storage option of Azure.*'account_key'"):
        open_store("az://container/x", {"acount_key": "k"})


def test_a_name_that_azure_would_change_is_refused(azure_server: AzureServer) -> None:
    store = open_store(azure_server.new_location(), azure_server.storage_options())
    for call in (lambda: store.put("a\\b", b"x"), lambda: store.get("a\\b"), lambda: store.delete(["a\\b"])):
        with pytest.raises(InvalidRequestError, match=r"cannot be an object name: az://.* in names"):
            call()
    assert store.list("") == []


def test_a_forked_child_uses_the_store_and_so_does_its_parent(azure_server: AzureServer) -> None:
    """At its exit a child waited for ever, for the loop of its parent."""
    check_forks(azure_server.new_location(), azure_server.storage_options())


def test_a_url_may_name_the_account() -> None:
    pytest.importorskip("adlfs")
    url = "abfss://container@account.dfs.core.windows.net/a/b"
    store = open_store(url, {"account_key": "a2V5"})
    assert isinstance(store, RemoteStore)
    assert store.url == url
    assert store._dialect.root == "container/a/b"
    assert store._clients.client().account_name == "account"


def test_a_good_storage_passes_the_check(azure_server: AzureServer) -> None:
    store = open_store(azure_server.new_location(), azure_server.storage_options())
    check_store(store, SystemTokens(), SystemClock())
    assert store.list("") == []
