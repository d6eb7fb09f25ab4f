"""Behaviour of the S3 store when requests or replies are lost, and when it is set up wrongly."""

from __future__ import annotations

import dataclasses
import queue
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.harness.s3_proxy import S3Proxy
from benchmarks.harness.servers.process import free_port
from tests.jobs.committing_job import CommittingJob
from tests.jobs.materializer_world import IDLE
from tests.stores.forking import FORKING, REFUSED_AFTER_A_FORK, run_forking
from tests.stores.lossy_proxy import BUSY, Answer, Fault, LossyProxy
from tests.workers.state_worker_setup import eventually
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, open_keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.remote.store import RemoteStore
from varvite.storage.transfer import hedged_claim
from varvite.storage.transfer.claim import Claim, claim
from varvite.storage.transfer.upload import Uploader, UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3

MINE, OTHER = "a" * 32, "b" * 32
WON = Claim(won=True, body=None)
QUICK = {"connect_timeout": 2, "read_timeout": 1}
LONG_S = 180
"""Nothing takes so long, unless it waits for this timeout."""


@pytest.fixture(params=["moto", "ceph"])
def server(request: pytest.FixtureRequest, engine: str) -> S3Server:
    """Each server, for each client."""
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return dataclasses.replace(found, engine=engine)


@pytest.fixture
def proxy(server: S3Server) -> Iterator[LossyProxy]:
    with LossyProxy(server.endpoint_url) as running:
        yield running


def open_at(server: S3Server, endpoint_url: str, location: str = "", **options: Any) -> RemoteStore:
    options = server.storage_options(endpoint_url=endpoint_url, config_kwargs=QUICK, **options)
    return RemoteStore(location or server.new_location(), options, backoff=Backoff(3, 0.05, 0.1))


@pytest.fixture
def store(server: S3Server, proxy: LossyProxy) -> RemoteStore:
    """A store behind the proxy, with one request behind it: its connection is a reused one."""
    opened = open_at(server, proxy.url)
    opened.put("warm/up", b"")
    proxy.seen.clear()
    return opened


def claim_mine(store: RemoteStore) -> Claim:
    return claim(store, "chain/1", b"entry " + MINE.encode(), MINE, SystemClock(), Backoff(4, 0.05, 0.2))


def test_a_lost_reply_settles_as_won(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.append(Fault.LOSE_REPLY)
    assert claim_mine(store) == WON
    assert store.get("chain/1") == b"entry " + MINE.encode()


def test_the_client_resends_and_meets_its_own_object(store: RemoteStore, proxy: LossyProxy, engine: str) -> None:
    """The very trap that claims are for: one call, two requests, and the answer "exists"."""
    proxy.faults.append(Fault.LOSE_REPLY)
    if engine == "s3fs":
        assert store.put_if_absent("chain/1", b"mine") is False
        assert proxy.seen == ["PUT", "PUT"]
    else:
        with pytest.raises(MayHaveHappenedError):
            store.put_if_absent("chain/1", b"mine")
        assert proxy.seen == ["PUT"]
    assert store.get("chain/1") == b"mine"


def test_all_replies_lost_settle_as_won_by_reading(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.extend([Fault.LOSE_REPLY] * 20)
    assert claim_mine(store) == WON


def test_a_lost_reply_to_a_lost_race_settles_as_lost(store: RemoteStore, proxy: LossyProxy) -> None:
    store.put("chain/1", OTHER.encode())
    proxy.faults.extend([Fault.LOSE_REPLY] * 20)
    assert claim_mine(store) == Claim(won=False, body=OTHER.encode())


def test_lost_requests_are_sent_again(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.extend([Fault.LOSE_REQUEST] * 3)
    assert claim_mine(store) == WON
    assert proxy.seen.count("PUT") > 3


def test_a_server_that_takes_nothing_ends_unclear_in_bounded_time(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.extend([Fault.LOSE_REQUEST] * 100)
    with pytest.raises(MayHaveHappenedError):
        claim_mine(store)
    assert proxy.seen.count("PUT") <= 8  # four tries, each resent at most once by the HTTP client


def test_a_hanging_server_ends_by_the_read_timeout(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.append(Fault.HANG)
    start = time.monotonic()
    with pytest.raises(MayHaveHappenedError, match="read back"):
        store.put_if_absent("chain/1", b"mine")
    assert time.monotonic() - start < 20
    assert proxy.seen == ["PUT"]
    assert store.get("chain/1") == b"mine"


def test_a_busy_server_may_have_done_a_write_and_surely_did_no_read(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.append(BUSY)
    with pytest.raises(MayHaveHappenedError):
        store.put_if_absent("chain/1", b"mine")
    proxy.read_faults.extend([BUSY] * 3)
    with pytest.raises(DidNotHappenError):
        store.get("warm/up")
    assert proxy.seen == ["PUT", "GET", "GET", "GET"]


def test_plain_writes_and_reads_are_repeated(store: RemoteStore, proxy: LossyProxy) -> None:
    proxy.faults.extend([BUSY, Fault.LOSE_REPLY])
    proxy.read_faults.extend([BUSY, Fault.LOSE_REPLY])
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_a_hanging_upload_is_joined_by_a_second_attempt(server: S3Server, proxy: LossyProxy) -> None:
    options = server.storage_options(endpoint_url=proxy.url, config_kwargs={"read_timeout": LONG_S})
    store = RemoteStore(server.new_location(), options)
    proxy.faults.append(Fault.HANG)
    with Uploader(store, SystemClock(), UploadPolicy(hedge_after_s=0.1, deadline_s=LONG_S)) as uploader:
        uploader.submit_bytes("seg/1", b"x").result(LONG_S / 3)
    proxy.released.set()
    assert store.get("seg/1") == b"x"


def test_an_acknowledgement_does_not_wait_for_a_request_that_hangs(
    server: S3Server, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hedged_claim, "HEDGE_MIN_S", 0.2)
    monkeypatch.setattr(hedged_claim, "HEDGE_MAX_S", 0.2)
    patient = server.storage_options(endpoint_url=proxy.url, config_kwargs={"read_timeout": 60})
    job = CommittingJob(PrefixedStore(RemoteStore(server.new_location(), patient), "job"), SystemClock())
    job.start()
    job.commit(IDLE)
    proxy.faults.append(Fault.HANG)
    commit = job.commit(IDLE)
    assert job.run is not None
    assert job.run._claims is not None
    threads = job.run._claims._threads
    assert threads.lost == 1, "the first request still hangs"
    job.commit(IDLE)
    proxy.released.set()
    assert eventually(lambda: threads.lost == 0, 30)
    assert job.run.reader.read_commit(commit.link).commit == commit
    job.start()
    job.commit(IDLE)
    job.close()


class Watched(PrefixedStore):
    """Tells when a call that stores a file is over, and what was stored then."""

    def __init__(self, inner: RemoteStore) -> None:
        super().__init__(inner, "watched")
        self.stored: queue.Queue[bytes] = queue.Queue()

    def put_file(self, name: str, path: Path) -> None:
        super().put_file(name, path)
        self.stored.put(self.get(name))


def test_an_encrypted_file_in_parts_is_the_same_whichever_attempt_stores_it(
    store: RemoteStore, proxy: LossyProxy, tmp_path: Path
) -> None:
    data = bytes(range(250)) * (20 << 20 >> 8)
    (tmp_path / "file").write_bytes(data)
    keys, watched = open_keyring("environment", {KEY_VARIABLE: "ab" * 32}), Watched(store)
    encrypted = EncryptedStore(watched, keys, "job", SystemTokens())
    proxy.faults.append(Fault.HANG)  # a part of the first attempt, which sends it again after the read timeout
    with Uploader(encrypted, SystemClock(), UploadPolicy(hedge_after_s=0.1, deadline_s=120)) as uploader:
        uploader.submit_file("snapdata/1", tmp_path / "file").result(120)
    first, second = (watched.stored.get(timeout=120) for _ in range(2))
    assert first == second
    assert encrypted.get("snapdata/1") == data
    proxy.released.set()


def test_a_storage_that_ignores_conditions_is_refused(moto_server: S3Server) -> None:
    """Only with moto, which does not mind that the proxy takes a signed header away."""
    with LossyProxy(moto_server.endpoint_url) as proxy:
        proxy.ignore_conditions = True
        store = open_at(moto_server, proxy.url)
        with pytest.raises(InvalidRequestError, match="If-None-Match is ignored"):
            check_store(store, SystemTokens(), SystemClock())
        assert store.list("preflight/") == []


def test_a_good_storage_passes_the_check(server: S3Server) -> None:
    store = open_at(server, server.endpoint_url)
    check_store(store, SystemTokens(), SystemClock())
    assert store.list("") == []


def test_a_missing_bucket_is_a_clear_error(server: S3Server, tmp_path: Path) -> None:
    store = open_at(server, server.endpoint_url, "s3://no-such-bucket-here/x")
    (tmp_path / "file").write_bytes(b"x")
    for call in (
        lambda: check_store(store, SystemTokens(), SystemClock()),
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: store.put_file("a", tmp_path / "file"),
        lambda: store.get_file("a", tmp_path / "out"),
        lambda: store.list(""),
        lambda: store.delete(["a", "b"]),
    ):
        with pytest.raises(InvalidRequestError, match="bucket does not exist"):
            call()


@pytest.mark.parametrize("changed", [{"secret": "wrong"}, {"key": "nobody"}])
def test_wrong_credentials_are_a_clear_error(ceph_server: S3Server, changed: dict[str, str]) -> None:
    store = open_at(ceph_server, ceph_server.endpoint_url, **changed)
    for call in (
        lambda: check_store(store, SystemTokens(), SystemClock()),
        lambda: store.get("a"),
        lambda: store.list(""),
    ):
        with pytest.raises(InvalidRequestError, match="credentials") as raised:
            call()
        assert ceph_server.secret not in str(raised.value)


def test_an_unreachable_endpoint_is_retryable_and_says_where(moto_server: S3Server) -> None:
    nowhere = dataclasses.replace(moto_server, endpoint_url=f"http://127.0.0.1:{free_port()}")
    store = open_at(nowhere, nowhere.endpoint_url)
    with pytest.raises(DidNotHappenError, match="no answer"):
        store.get("a")
    with pytest.raises(MayHaveHappenedError):
        store.put_if_absent("a", b"")


def test_a_forked_child_uses_the_store_or_is_told_not_to_and_its_parent_uses_it(server: S3Server) -> None:
    """Every request of obstore in a child of a process that has made one hangs for ever."""
    # Once a child's exit took the parent's connection out of the shared epoll: a stall until the read timeout.
    options = server.storage_options(config_kwargs={"read_timeout": LONG_S})
    program = FORKING if server.engine == "s3fs" else REFUSED_AFTER_A_FORK
    done = run_forking(program, server.new_location(), options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['child', 'parent/after', 'parent/before']"
    assert done.stderr == ""


def test_an_upload_in_parts_that_fails_is_aborted(server: S3Server, proxy: LossyProxy, tmp_path: Path) -> None:
    """Parts of an upload that is not ended are billed, and no listing shows them."""
    (tmp_path / "file").write_bytes(bytes(40 << 20))
    location = server.new_location()
    store = RemoteStore(location, server.storage_options(endpoint_url=proxy.url), backoff=Backoff(1, 0, 0))
    proxy.faults.extend([Answer(503, "SlowDown")] * 3)
    with pytest.raises(MayHaveHappenedError, match="uploading"):
        store.put_file("snapdata/1", tmp_path / "file")
    bucket, _, prefix = location.partition("://")[2].partition("/")
    with server.client() as client:
        uploads = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert [upload for upload in uploads if upload["Key"].startswith(prefix)] == []
    assert store.list("") == []


def test_what_other_tools_leave_is_listed_or_an_error(server: S3Server) -> None:
    store = RemoteStore(server.new_location(), server.storage_options())
    bucket, _, prefix = store.url.partition("://")[2].partition("/")
    store.put("chain/1", b"x")
    store.put("chain/empty", b"")
    with server.client() as client:
        for marker in ("chain/", "seg/"):
            client.put_object(Bucket=bucket, Key=f"{prefix}/{marker}", Body=b"")
        assert [meta.name for meta in store.list("")] == ["chain/1", "chain/empty"]
        client.put_object(Bucket=bucket, Key=f"{prefix}/chain//odd", Body=b"x")
    if server.engine == "s3fs":
        assert [meta.name for meta in store.list("chain/")] == ["chain//odd", "chain/1", "chain/empty"]
    else:
        with pytest.raises(InvalidRequestError, match=r"empty part in its name.*engine=s3fs"):
            store.list("chain/")


def test_a_large_body_may_take_longer_to_be_sent_by_obstore(moto_server: S3Server) -> None:
    """Its read timeout counts the time of sending, in which a slow line would lose every upload."""
    pytest.importorskip("obstore")
    with S3Proxy(moto_server.endpoint_url, latency_ms=1600) as proxy:
        options = moto_server.storage_options(endpoint_url=proxy.url, config_kwargs=QUICK, engine="obstore")
        store = RemoteStore(moto_server.new_location(), options, backoff=Backoff(1, 0, 0))
        store.put("a", bytes(1 << 20))
        with pytest.raises(MayHaveHappenedError):
            store.put("b", b"x")


def test_credentials_of_the_environment_are_used(
    ceph_server: S3Server, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ceph_server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ceph_server.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")  # the option counts more
    store = RemoteStore(ceph_server.new_location(), {"endpoint_url": ceph_server.endpoint_url, "engine": engine})
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_no_credentials_at_all_are_a_clear_error(
    moto_server: S3Server, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    store = RemoteStore(moto_server.new_location(), {"endpoint_url": moto_server.endpoint_url, "engine": engine})
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b""), lambda: store.list("")):
        with pytest.raises(InvalidRequestError, match="no usable credentials; give key and secret"):
            call()
