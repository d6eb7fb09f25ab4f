"""A name is never written again with other bytes, however often it is sent: what a `LogStore` may count on.

An encrypting store encrypts under a random salt, so all attempts must send what was encrypted once.
"""

from __future__ import annotations

import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import World
from tests.stores.manual_clock import ManualClock
from tests.stores.scripted import ScriptedStore
from tests.stores.write_once import WriteOnceStore
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.materializer.resources.bandwidth import ThrottledReads, TokenBucket
from varvite.materializer.resources.interruptible_store import InterruptibleStore
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.job.record import open_or_create_job
from varvite.storage.job.storage_choice import new_job_storage
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, open_keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.prepared_object import prepare
from varvite.storage.transfer.claim import claim
from varvite.storage.transfer.upload import Uploader, UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectStore

KEY = "ab" * 32
NAME = layout.segment(3, "op", 0, "f" * 32, 0)
CHAIN = layout.chain(7)
TOKEN = "0" * 31 + "1"
BODY = b"some rows " * 20_000


def encrypted(inner: ObjectStore) -> ObjectStore:
    return EncryptedStore(inner, open_keyring("environment", {KEY_VARIABLE: KEY}), "job", SystemTokens())


def of_a_job(inner: ObjectStore) -> ObjectStore:
    """With all that may stand above the job's store in a materializer."""
    store, clock = JobStore(inner, "job"), ManualClock()
    open_or_create_job(
        store, name="job", max_parallelism=8, clock=clock, tokens=SystemTokens(), storage=new_job_storage("environment")
    )
    throttled = ThrottledReads(store, TokenBucket(1 << 30, clock, StopSignal()))
    return InterruptibleStore(throttled, StopSignal())


@pytest.fixture(params=["plain", "encrypted", "prefixed encrypted", "encrypted job"])
def wrapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[ObjectStore], ObjectStore]:
    """Makes a store as the product stacks them, over one that it is given."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    made: dict[str, Callable[[ObjectStore], ObjectStore]] = {
        "plain": lambda inner: inner,
        "encrypted": encrypted,
        "prefixed encrypted": lambda inner: PrefixedStore(encrypted(inner), "below"),
        "encrypted job": of_a_job,
    }
    return made[request.param]


def test_an_upload_that_is_tried_again_sends_the_same(
    wrapped: Callable[[ObjectStore], ObjectStore], tmp_path: Path
) -> None:
    inner = WriteOnceStore(lambda name: "seg/" in name)
    store = wrapped(inner)
    (tmp_path / "file").write_bytes(BODY)
    with Uploader(store, ManualClock()) as uploader:
        uploads = [uploader.submit_bytes(NAME, BODY), uploader.submit_file(NAME + "-file", tmp_path / "file")]
    assert [upload.exception() for upload in uploads] == [None, None]
    assert inner.refused == []
    assert len(inner.sent_again("seg/")) == 2
    assert store.get(NAME) == store.get(NAME + "-file") == BODY


def test_a_hedge_sends_the_same_and_a_late_loser_too(
    wrapped: Callable[[ObjectStore], ObjectStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encrypted copy of a file stays until the late one has sent it, and is gone then."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "file").write_bytes(BODY)
    inner = Holding()
    store = wrapped(inner)
    uploader = Uploader(store, SystemClock(), UploadPolicy(hedge_after_s=0.05))
    upload = uploader.submit_file(NAME, tmp_path / "file")
    assert upload.result(20) is None
    assert inner.begun.is_set()
    assert inner.sent_again("seg/") == [], "the hedge alone has got through"
    inner.gate.set()
    uploader.close()
    assert inner.let_go.wait(20)
    assert inner.refused == []
    assert len(inner.sent_again("seg/")) == 1, "the late one has sent it, too"
    assert store.get(NAME) == BODY
    assert wait_until_empty(tmp_path / "scratch")


class Holding(WriteOnceStore):
    """Holds the first upload of a file until a gate opens."""

    def __init__(self) -> None:
        super().__init__(lambda _: False)
        self.gate, self.begun, self.let_go = threading.Event(), threading.Event(), threading.Event()

    def put_file(self, name: str, path: Path) -> None:
        if self.begun.is_set():
            return super().put_file(name, path)
        self.begun.set()
        assert self.gate.wait(20)
        super().put_file(name, path)
        return self.let_go.set()


def wait_until_empty(directory: Path) -> bool:
    clock = SystemClock()
    for _ in range(1000):
        if not list(directory.iterdir()):
            return True
        clock.sleep(0.01)
    return False


def test_a_claim_sends_the_same_again(wrapped: Callable[[ObjectStore], ObjectStore]) -> None:
    inner = WriteOnceStore(lambda name: "chain/" in name)
    store = wrapped(inner)
    body = b"entry " + TOKEN.encode()
    assert claim(store, CHAIN, body, TOKEN, ManualClock()).won
    assert inner.refused == []
    assert len(inner.sent_again("chain/")) == 1
    assert store.get(CHAIN) == body


class CountedTokens(SystemTokens):
    made = 0

    def token(self) -> str:
        self.made += 1
        return super().token()


def test_an_object_is_encrypted_once_for_all_its_attempts(tmp_path: Path) -> None:
    """Each salt is used once, so there are as many of them as encryptions."""
    tokens = CountedTokens()
    inner = WriteOnceStore(lambda _: True)
    store = EncryptedStore(inner, open_keyring("environment", {KEY_VARIABLE: KEY}), "job", tokens)
    (tmp_path / "file").write_bytes(BODY)
    with Uploader(store, ManualClock()) as uploader:
        uploader.submit_bytes("a", BODY).result(20)
        uploader.submit_file("b", tmp_path / "file").result(20)
    assert claim(store, "c", TOKEN.encode(), TOKEN, ManualClock()).won
    assert len(inner.sent_again("")) == 3
    assert tokens.made == 3


def test_a_failed_encryption_fails_its_attempt_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the first attempt, and the second one finds it with room."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    clock = ManualClock()
    clock.sleep = lambda _: monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # type: ignore[method-assign]
    (tmp_path / "file").write_bytes(BODY)
    store = encrypted(MemoryStore())
    with Uploader(store, clock) as uploader:
        uploader.submit_file("a", tmp_path / "file").result(20)
    assert store.get("a") == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_cannot_be_put_if_absent(wrapped: Callable[[ObjectStore], ObjectStore], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BODY)
    prepared = prepare(wrapped(ScriptedStore()), NAME, tmp_path / "file")
    with pytest.raises(InvalidRequestError, match="give its bytes"):
        prepared.put_if_absent()
    prepared.close()


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_the_life_of_a_job_writes_every_name_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_encrypted: bool
) -> None:
    """Gathered segments and images, files of snapshots, descriptors and entries are sent twice each, packs once."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    root = WriteOnceStore(lambda name: any(f"/{area}" in name for area in ("seg/", "chain/", "snap/", "snapdata/")))
    storage = new_job_storage("environment") if is_encrypted else None
    policy = CommitPolicy(full_every=5, inline_max_bytes=100)
    world = World(tmp_path, root, policy=policy, storage=storage)
    sidecar = world.sidecar()
    for _ in range(2):
        world.commit(6, images=(b"first", b"second"))
        assert sidecar.fold(), sidecar.events.all
    world.commit(6)
    world.check()
    for word in ("gathered", "chain/", "snap/", "snapdata/"):
        assert root.sent_again(word), word
    assert world.names(layout.PACKS)
    assert root.refused == []
    world.close()


def test_a_run_is_taken_over_through_an_encrypting_write_once_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """`job.json` is plain, and everything else is sent as it was sent first."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    root = WriteOnceStore(lambda _: True)
    store = JobStore(root, "job")
    for _ in range(2):
        record = open_or_create_job(
            store,
            name="job",
            max_parallelism=8,
            clock=ManualClock(),
            tokens=SystemTokens(),
            storage=new_job_storage("environment"),
        )
        run = JobRun(store, record, CommitPolicy(), ManualClock(), SystemTokens())
        run.take_over()
        run.close()
    assert root.refused == []
    assert len(root.sent_again("chain/")) == 2
