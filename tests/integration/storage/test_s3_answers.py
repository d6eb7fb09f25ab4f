"""Answers of AWS when something is wrong, as far as moto and the proxy in front of it can say it."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import botocore.auth
import pytest

from benchmarks.harness.s3_proxy import Reply, Request, S3Proxy
from benchmarks.harness.servers.process import free_port
from tests.stores.lossy_proxy import BUSY, EXPIRED, FAILED_BUT_DONE, SKEWED, Answer, Fault, LossyProxy
from tests.stores.manual_clock import ManualClock
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.job.log_store import check_log
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.remote.store import RemoteStore
from varvite.storage.transfer.claim import CLAIM_BACKOFF, Claim, claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3
ELSEWHERE = (("x-amz-bucket-region", "eu-west-1"),)
"""As AWS says where a bucket is."""
MINE = "a" * 32
CONFLICT = Answer(409, "ConditionalRequestConflict")
OPERATION_ABORTED = Answer(409, "OperationAborted")
PASSING = (
    BUSY,
    Answer(500, "InternalError"),
    FAILED_BUT_DONE,
    Answer(400, "RequestTimeout"),
    Answer(400, "KMS.ThrottlingException"),
    Answer(503, "ServiceUnavailable", done=True),
    Answer(429, "TooManyRequests"),
)
LASTING = (
    (SKEWED, "synchronise it"),
    (EXPIRED, "correct key, secret or token"),
    (Answer(403, "AccessDenied"), "grant list, read, write and delete"),
    (Answer(301, "PermanentRedirect", headers=ELSEWHERE), "correct region and endpoint_url"),
    (Answer(400, "AuthorizationHeaderMalformed"), "correct region and endpoint_url"),
    (Answer(307, "TemporaryRedirect", headers=ELSEWHERE), "correct region and endpoint_url"),
    (Answer(501, "NotImplemented"), "conditional writes"),
    (Answer(405, "MethodNotAllowed"), "conditional writes"),
)


def name_of(value: object) -> str | None:
    return f"{value.status}-{value.code}{'-done' * value.done}" if isinstance(value, Answer) else None


@pytest.fixture
def moto_server(moto_server: S3Server, engine: str) -> S3Server:
    """moto, for each client."""
    return dataclasses.replace(moto_server, engine=engine)


@pytest.fixture
def proxy(moto_server: S3Server) -> Iterator[LossyProxy]:
    with LossyProxy(moto_server.endpoint_url) as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    """Its pauses take no time, and are counted."""
    return ManualClock()


@pytest.fixture
def store(moto_server: S3Server, proxy: LossyProxy, clock: ManualClock) -> RemoteStore:
    opened = open_at(moto_server, proxy.url, clock)
    opened.put("warm/up", b"before")
    proxy.seen.clear()
    return opened


def open_at(server: S3Server, url: str, clock: ManualClock | None = None, read_timeout_s: float = 20) -> RemoteStore:
    config = {"connect_timeout": 2, "read_timeout": read_timeout_s}
    return RemoteStore(
        server.new_location(), server.storage_options(endpoint_url=url, config_kwargs=config), clock=clock
    )


def check(store: RemoteStore) -> None:
    check_store(store, SystemTokens(), SystemClock())


@pytest.mark.parametrize("answer", PASSING, ids=name_of)
def test_a_passing_answer_is_tried_again_with_pauses(
    store: RemoteStore, proxy: LossyProxy, clock: ManualClock, answer: Answer
) -> None:
    proxy.faults.append(answer)
    with pytest.raises(MayHaveHappenedError):
        store.put_if_absent("chain/1", b"x")
    proxy.faults.extend([answer] * 2)
    store.put("a", b"x")
    proxy.read_faults.extend([answer] * 2)
    assert store.get("a") == b"x"
    assert proxy.seen == ["PUT"] + ["PUT"] * 3 + ["GET"] * 3
    assert clock.sleeps == [0.1, 0.2] * 2
    proxy.read_faults.extend([answer] * 3)
    with pytest.raises(DidNotHappenError, match="no answer from the storage; try again"):
        store.get("a")


@pytest.mark.parametrize("answer", [*PASSING, CONFLICT], ids=name_of)
def test_a_claim_settles_whatever_is_answered_in_between(store: RemoteStore, proxy: LossyProxy, answer: Answer) -> None:
    proxy.faults.extend([answer] * 3)
    won = claim(store, "chain/1", MINE.encode(), MINE, ManualClock())
    assert won == Claim(won=True, body=None)
    assert store.get("chain/1") == MINE.encode()
    proxy.faults.extend([answer] * 3)
    assert claim(store, "chain/1", b"b" * 32, "b" * 32, ManualClock()) == Claim(won=False, body=MINE.encode())


def test_a_conflict_of_requests_in_flight_is_never_another_owner(store: RemoteStore, proxy: LossyProxy) -> None:
    """S3 answers 409 while another conditional request or a delete is in flight, and has written nothing.

    Clients that took it for "exists already" reported an owner where there was none (apache/opendal#6741).
    """
    attempts = CLAIM_BACKOFF.attempts
    proxy.faults.extend([CONFLICT] * (attempts - 1))
    assert claim(store, "chain/1", MINE.encode(), MINE, ManualClock()) == Claim(won=True, body=None)
    proxy.faults.extend([CONFLICT, OPERATION_ABORTED] * (attempts // 2))
    with pytest.raises(MayHaveHappenedError, match=r"start again .*refused each time.*no such object"):
        claim(store, "chain/2", MINE.encode(), MINE, ManualClock())
    assert not proxy.faults
    assert claim(store, "chain/2", MINE.encode(), MINE, ManualClock()) == Claim(won=True, body=None)


@pytest.mark.parametrize(
    "write", [lambda store: store.put("seg/1", b"x"), lambda store: store.delete(["warm/up"])], ids=["put", "delete"]
)
def test_a_conflict_of_requests_in_flight_is_tried_again_by_plain_writes(
    store: RemoteStore,
    proxy: LossyProxy,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[RemoteStore], None],
) -> None:
    proxy.always = CONFLICT
    with pytest.raises(MayHaveHappenedError, match="try again"):
        write(store)
    assert len(proxy.seen) == 3
    monkeypatch.setattr(clock, "sleep", lambda _: setattr(proxy, "always", None))
    write(store)
    assert len(proxy.seen) == 5


def test_the_check_before_the_first_batch_survives_conflicts_of_its_racers(
    store: RemoteStore, proxy: LossyProxy
) -> None:
    proxy.faults.extend([CONFLICT] * 2)
    check(store)
    proxy.always = CONFLICT
    with pytest.raises(DidNotHappenError, match="start again"):
        check(store)


def test_a_claim_that_filled_the_storage_itself_is_won(store: RemoteStore, proxy: LossyProxy, engine: str) -> None:
    """It is sent again after a lost reply, and that one is refused: what was written first fills the quota."""
    proxy.faults.extend([Fault.LOSE_REPLY, *[Answer(403, "QuotaExceeded")] * 20])
    assert claim(store, "chain/1", MINE.encode(), MINE, ManualClock()) == Claim(won=True, body=None)
    # s3fs's HTTP client sends it again by itself, and obstore's does not: there the claim reads first.
    assert proxy.seen == (["PUT", "PUT", "GET"] if engine == "s3fs" else ["PUT", "GET"])


def test_a_refused_condition_is_a_lost_race(store: RemoteStore, proxy: LossyProxy) -> None:
    assert store.put_if_absent("chain/1", b"x")
    assert not store.put_if_absent("chain/1", b"y")
    proxy.faults.append(CONFLICT)
    assert not store.put_if_absent("chain/2", b"y"), "somebody is writing it: who has won is told by reading"
    assert proxy.seen == ["PUT"] * 3


@pytest.mark.parametrize(("answer", "advice"), LASTING, ids=name_of)
def test_what_trying_again_cannot_cure_is_told_at_once_and_before_the_first_batch(
    moto_server: S3Server, store: RemoteStore, proxy: LossyProxy, answer: Answer, advice: str
) -> None:
    proxy.always = answer
    with pytest.raises(InvalidRequestError, match=advice) as raised:
        check(store)
    assert moto_server.secret not in str(raised.value)
    for call in (
        lambda: store.get("warm/up"),
        lambda: store.put("a", b"x"),
        lambda: store.put_if_absent("b", b"x"),
        lambda: store.list(""),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(InvalidRequestError, match=advice):
            call()
    proxy.always = None
    assert [meta.name for meta in store.list("")] == ["warm/up"]
    check(store)


@pytest.mark.parametrize("size", [1000, 20 << 20])
def test_a_body_that_ends_early_is_fetched_again(
    store: RemoteStore, proxy: LossyProxy, tmp_path: Path, size: int
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(bytes(range(250)) * (size // 250))
    store.put_file("file", source)
    proxy.read_faults.extend([Fault.CUT] * 2)
    store.get_file("file", back)
    assert back.read_bytes() == source.read_bytes()
    proxy.read_faults.append(Fault.CUT)
    assert store.get_range("file", 100, 500) == source.read_bytes()[100:600]
    proxy.read_faults.append(Fault.CUT)
    assert [meta.name for meta in store.list("")] == ["file", "warm/up"]


def test_a_clock_that_is_wrong_is_told_by_a_real_server(ceph_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_at(dataclasses.replace(ceph_server, engine="s3fs"), ceph_server.endpoint_url)
    check(store)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(InvalidRequestError, match="clock of this machine differs"):
        check(store)
    with pytest.raises(InvalidRequestError, match="clock of this machine differs"):
        store.put_if_absent("chain/1", b"x")


def test_a_bucket_that_may_only_be_read_is_told_before_the_first_batch(ceph_server: S3Server, engine: str) -> None:
    bucket = f"read-only-{uuid.uuid4().hex}"
    may_read = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]}  # fmt: skip
    with ceph_server.client() as client:
        client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="job/there", Body=b"x")
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [may_read]}))
    store = RemoteStore(
        f"s3://{bucket}/job", {"anon": True, "endpoint_url": ceph_server.endpoint_url, "engine": engine}
    )
    assert store.get("there") == b"x"
    assert [meta.name for meta in store.list("")] == ["there"]
    with pytest.raises(InvalidRequestError, match="grant list, read, write and delete"):
        check(store)


@pytest.fixture
def undeletable(moto_server: S3Server) -> str:
    """A bucket from which nothing can be deleted. As on AWS, a request for several objects succeeds nevertheless."""
    bucket = f"no-delete-{uuid.uuid4().hex}"
    denied = {"Effect": "Deny", "Principal": "*", "Action": ["s3:DeleteObject"], "Resource": f"arn:aws:s3:::{bucket}/*"}
    with moto_server.client() as client:
        client.create_bucket(Bucket=bucket)
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    return bucket


def test_a_bucket_from_which_nothing_can_be_deleted_is_told_before_the_first_batch(
    moto_server: S3Server, undeletable: str
) -> None:
    """It was a failure that passes, so that a supervisor would have started the query again and again."""
    store = RemoteStore(f"s3://{undeletable}/job", moto_server.storage_options())
    with pytest.raises(InvalidRequestError, match="grant list, read, write and delete"):
        check(store)


def test_an_object_that_cannot_be_deleted_is_named_as_everywhere(moto_server: S3Server, undeletable: str) -> None:
    root = RemoteStore(f"s3://{undeletable}/root", moto_server.storage_options())
    for store in (root, PrefixedStore(root, "job")):
        for names in (["seg/1"], ["seg/1", "seg/2"]):
            with pytest.raises(InvalidRequestError, match="grant list") as raised:
                store.delete(names)
            assert raised.value.context.get("object_name") in (None, "seg/1")


class DirectoryBucket(S3Proxy):
    """Lists as S3 Express does: whole directories only, and in no order."""

    async def exchange(self, request: Request) -> Reply | None:
        query = parse_qs(request.target.partition("?")[2])
        if request.kind == "LIST" and (query.get("prefix", ["/"])[0][-1:] != "/" or "start-after" in query):
            return Answer(400, "InvalidRequest").reply()
        reply = await super().exchange(request)
        if reply is None or request.kind != "LIST":
            return reply
        before, *found = re.split(rb"(?=<Contents>)", (await reply.whole()).body)
        listed, after = b"".join(found).rpartition(b"</Contents>")[::2]
        found = re.split(rb"(?=<Contents>)", listed + b"</Contents>" * bool(found))
        return dataclasses.replace(reply, body=before + b"".join(reversed(found)) + after, rest=None)


def test_a_directory_bucket_of_s3_express_is_listed(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/operate/log-stores.md proposes one for the log, and each LIST of a name or after a name was refused."""
    monkeypatch.setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")  # moto knows no sessions
    bucket = f"fast-{uuid.uuid4().hex[:8]}--use1-az4--x-s3"
    moto_server.make_bucket(bucket)
    if moto_server.engine == "obstore":
        moto_server = dataclasses.replace(moto_server, engine="")  # obstore knows none, so s3fs is chosen
    with DirectoryBucket(moto_server.endpoint_url) as proxy:
        for root in ("", "/varvite/log"):
            store = RemoteStore(f"s3://{bucket}{root}", moto_server.storage_options(endpoint_url=proxy.url))
            check(store)
            check_log(store, SystemTokens().token())
            names = [f"chain/{n:02d}" for n in range(12)]
            for name in [*names, "chain2", "pack/1"]:
                store.put(name, b"x")
            assert [meta.name for meta in store.list("chain/", start_after="chain/03")] == names[4:]
            assert [meta.name for meta in store.list("chain/1")] == names[10:]
            assert [meta.name for meta in store.list("")] == [*names, "chain2", "pack/1"]
            store.delete([*names, "chain2", "pack/1"])


class WholeObjects(S3Proxy):
    """Knows no ranges, and answers with the whole object, which HTTP allows."""

    async def exchange(self, request: Request) -> Reply | None:
        request.headers.popall("Range", None)
        return await super().exchange(request)


def test_a_storage_that_ignores_ranges_is_refused_before_the_first_batch(moto_server: S3Server) -> None:
    """It was told as damage: "only 32 of the 16 bytes exist", and `varvite verify` was to help."""
    with WholeObjects(moto_server.endpoint_url) as proxy:
        store = open_at(moto_server, proxy.url)
        with pytest.raises(
            InvalidRequestError, match=r"answered .* to a request for 16 bytes, as if it ignored ranges"
        ):
            check(store)


class NoS3(BaseHTTPRequestHandler):
    """A web server that knows nothing of S3."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"<html>not found</html>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base names it so
        pass


def test_a_web_server_that_is_no_s3_is_refused(moto_server: S3Server) -> None:
    with HTTPServer(("127.0.0.1", 0), NoS3) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with pytest.raises(InvalidRequestError, match="endpoint_url"):
                check(open_at(moto_server, f"http://127.0.0.1:{server.server_address[1]}"))
        finally:
            server.shutdown()
            thread.join()


def test_an_endpoint_where_nobody_listens_is_told_before_the_first_batch(moto_server: S3Server) -> None:
    clock = ManualClock()
    with pytest.raises(DidNotHappenError, match="endpoint_url"):
        check_store(open_at(moto_server, f"http://127.0.0.1:{free_port()}", clock), SystemTokens(), clock)


def test_a_server_that_hangs_is_told_before_the_first_batch_in_few_requests(
    moto_server: S3Server, proxy: LossyProxy, clock: ManualClock
) -> None:
    proxy.read_faults.extend([Fault.HANG] * 3)
    with pytest.raises(DidNotHappenError, match="did not answer"):
        check(open_at(moto_server, proxy.url, clock, read_timeout_s=0.5))
    assert proxy.seen == ["GET"] * 3
    proxy.released.set()
