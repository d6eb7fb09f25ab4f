"""HDFS through hdfs-native: what its contract does not ask (tests/contract/test_object_store.py)."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.harness.servers.hdfs import HdfsServer
from benchmarks.harness.servers.process import free_port
from tests.stores.clouds.checks import MINE, check_forks, check_nobody_listens, check_races
from tests.stores.forking import REFUSED_AFTER_A_FORK, run_forking
from tests.stores.manual_clock import ManualClock
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError, MayHaveHappenedError, RetryableError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.local.store import STALE_S, TEMPORARY
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.remote.store import RemoteStore
from varvite.storage.transfer.claim import Claim, claim

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.hdfs, pytest.mark.rare]


@pytest.fixture
def store(hdfs_server: HdfsServer) -> RemoteStore:
    return RemoteStore(hdfs_server.new_location(), clock=ManualClock())


def test_eight_writers_race_and_one_wins_each_time(hdfs_server: HdfsServer) -> None:
    check_races(hdfs_server.new_location(), {})


def test_a_forked_child_is_told_not_to_use_the_store_and_its_parent_uses_it(hdfs_server: HdfsServer) -> None:
    """A child goes on with the package's connections to DataNodes, and its first read hangs."""
    check_forks(hdfs_server.new_location(), {}, REFUSED_AFTER_A_FORK)


def test_a_process_ends_in_an_orderly_way_while_files_are_closed(hdfs_server: HdfsServer) -> None:
    """It was aborted: the library's code came back into a Python that had ended."""
    program = (
        "import sys\nfrom varvite.storage.object_stores.open import open_store\nstore = open_store(sys.argv[1])\n"
        "for number in range(20): store.put(str(number), b'x')"
    )
    done = run_forking(program, hdfs_server.new_location(), {})
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_listens() -> None:
    pytest.importorskip("hdfs_native")
    check_nobody_listens(RemoteStore(f"hdfs://127.0.0.1:{free_port()}/x", clock=ManualClock()))


def test_a_good_storage_passes_the_check(store: RemoteStore) -> None:
    check_store(store, SystemTokens(), SystemClock())
    assert store.list("") == []


def test_a_write_whose_reply_is_lost_settles_as_won(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs = store._clients.client().hdfs
    rename = hdfs.rename

    def rename_and_lose_the_reply(*arguments: Any) -> None:
        rename(*arguments)
        raise OSError("connection reset")

    monkeypatch.setattr(hdfs, "rename", rename_and_lose_the_reply)
    with pytest.raises(MayHaveHappenedError, match="no clear answer"):
        store.put_if_absent("chain/0", b"x")
    assert claim(store, "chain/1", MINE.encode(), MINE, SystemClock()) == Claim(won=True, body=None)
    assert [store.get(f"chain/{number}") for number in (0, 1)] == [b"x", MINE.encode()]


def test_what_a_killed_writer_left_is_never_seen_and_removed_by_a_later_process(hdfs_server: HdfsServer) -> None:
    location = hdfs_server.new_location()
    program = """
import os, signal, sys
from varvite.storage.object_stores.remote.store import RemoteStore
store = RemoteStore(sys.argv[1])
hdfs = store._clients.client().hdfs
hdfs.rename = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
store.put("a", b"x")
"""
    assert run_forking(program, location, {}).returncode == -9
    first = RemoteStore(location)
    hdfs = first._clients.client().hdfs
    (left,) = hdfs.list_status(first._full(TEMPORARY))
    assert first.list("") == []
    first.put("b", b"")
    assert [status.path for status in hdfs.list_status(first._full(TEMPORARY))] == [left.path], "it may be in use"
    assert hdfs.recover_lease(left.path) in {True, False}
    long_ago_ms = left.modification_time - int(STALE_S * 1000) - 1
    _retry(lambda: hdfs.set_times(left.path, long_ago_ms, long_ago_ms))
    RemoteStore(location).put("c", b"")
    assert [*hdfs.list_status(first._full(TEMPORARY))] == []
    assert [meta.name for meta in first.list("")] == ["b", "c"]


def test_a_name_that_hdfs_does_not_take_is_refused(store: RemoteStore) -> None:
    for call in (lambda: store.put("a:b", b"x"), lambda: store.get("a:b"), lambda: store.delete(["a:b"])):
        with pytest.raises(InvalidRequestError, match="has no ':' in names"):
            call()


def test_directories_are_no_objects_and_empty_ones_go(store: RemoteStore) -> None:
    store.put("a/b/c", b"x")
    store.delete(["a", "a/b", "a/b/c/d", "nowhere/x"])
    assert store.get("a/b/c") == b"x"
    store.delete(["a/b/c"])
    hdfs = store._clients.client().hdfs
    assert [status.path for status in hdfs.list_status(store._full("").rstrip("/"))] == [store._full(TEMPORARY)]


def test_files_of_several_blocks_are_written_and_read(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    store = RemoteStore(hdfs_server.new_location(), {"dfs.blocksize": 16 << 20})
    source.write_bytes(random.Random(1).randbytes((40 << 20) + 3))
    store.put_file("large", source)
    store.get_file("large", target)
    assert target.read_bytes() == source.read_bytes()
    assert store.get_range("large", (32 << 20) - 5, 10) == source.read_bytes()[(32 << 20) - 5 :][:10]


def test_a_user_without_rights_is_told_so(hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-in-particular")
    stranger = RemoteStore(hdfs_server.new_location())
    for call in (lambda: stranger.put("a", b"x"), lambda: stranger.put_if_absent("a", b"x")):
        with pytest.raises(InvalidRequestError, match="grant list, read, write and delete"):
            call()


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The quota', "storage is full"),
        ("NoSASLMechanism", "run kinit"),
        ('RPCError("org.apache.hadoop.security.token.SecretManager$InvalidToken", "expired', "correct key, secret"),
        ('RPCError("org.apache.hadoop.ipc.RetriableException", "in safe mode', "try again"),
    ],
)
def test_errors_say_what_to_do(store: RemoteStore, monkeypatch: pytest.MonkeyPatch, text: str, advice: str) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError(f'{text}\\n\\tat org.apache.hadoop.Some.frame(Some.java:1)\\n")')

    monkeypatch.setattr(store._clients.client().hdfs, "rename", fail)
    with pytest.raises((RetryableError, InvalidRequestError), match=advice) as raised:
        store.put("a", b"x")
    assert ("Some.java" in str(raised.value)) == ("SASL" in text)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[hdfs\]'"):
        open_store("hdfs://nameservice/x")


def _retry(call: Any) -> Any:
    """The answer, once the NameNode has closed what its writer has not."""
    give_up_s = time.monotonic() + 60
    while True:
        try:
            return call()
        except (RetryableError, OSError, RuntimeError):
            assert time.monotonic() < give_up_s
            time.sleep(0.5)
