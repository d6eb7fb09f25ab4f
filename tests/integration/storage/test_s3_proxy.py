"""The proxy that benchmarks count S3's requests with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness.s3_proxy import KINDS, S3Proxy, Traffic
from tests.workers.state_worker_setup import eventually
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3
NOTHING = Traffic(0, 0, 0)


@pytest.mark.parametrize("kind", ["moto", "ceph"])
def test_requests_and_bytes_are_counted_by_kind(request: pytest.FixtureRequest, kind: str) -> None:
    server: S3Server = request.getfixturevalue(f"{kind}_server")
    with S3Proxy(server.endpoint_url) as proxy:
        store = RemoteStore(server.new_location(), server.storage_options(endpoint_url=proxy.url))
        store.put("a", b"x" * 100)
        assert store.put_if_absent("b/ü %", b"y")
        assert store.get("a") == b"x" * 100
        assert store.get_range("a", 10, 5) == b"x" * 5
        assert store.get_range("a", 10, 0) == b""
        assert [meta.name for meta in store.list("")] == ["a", "b/ü %"]
        store.delete(["a"])
        store.delete(["a", "b/ü %"])
        counts = proxy.counts()
    assert set(counts) == set(KINDS)
    assert counts["PUT"] == Traffic(2, 101, 0)
    assert counts["GET"] == Traffic(2, 0, 105)
    assert counts["HEAD"] == Traffic(1, 0, 0)
    assert {kind: counts[kind].requests for kind in KINDS} == {**dict.fromkeys(KINDS, 0), "PUT": 2, "GET": 2, "HEAD": 1,
                                                               "LIST": 1, "DELETE": 2}  # fmt: skip


def test_an_upload_in_parts_is_counted_by_its_parts(moto_server: S3Server, engine: str, tmp_path: Path) -> None:
    size = 40 << 20
    (tmp_path / "large").write_bytes(bytes(size))
    with S3Proxy(moto_server.endpoint_url) as proxy:
        options = moto_server.storage_options(endpoint_url=proxy.url, engine=engine)
        store = RemoteStore(moto_server.new_location(), options)
        store.put_file("large", tmp_path / "large")
        before = proxy.counts()
        store.get_file("large", tmp_path / "back")
        # The last piece is counted when it has been sent.
        assert eventually(lambda: proxy.counts()["GET"].received_bytes >= size, 30)
        after = proxy.counts()
    assert before["PUT"] == Traffic(3, size, 0)
    assert before["MULTIPART"].requests == 2
    assert after["PUT"] - before["PUT"] == NOTHING
    # s3fs asks for all of it first, and closes that connection when it has seen how much it is.
    assert size <= (after["GET"] - before["GET"]).received_bytes < (2 * size if engine == "s3fs" else size + 1)
    assert (tmp_path / "back").stat().st_size == size


def test_latency_is_added_to_every_request(moto_server: S3Server) -> None:
    with S3Proxy(moto_server.endpoint_url, latency_ms=50) as proxy:
        store = RemoteStore(moto_server.new_location(), moto_server.storage_options(endpoint_url=proxy.url))
        began_s = time.monotonic()
        for _ in range(4):
            store.put("a", b"x")
        assert time.monotonic() - began_s >= 4 * 0.05


def test_a_server_that_is_gone_gives_no_answer(moto_server: S3Server) -> None:
    with S3Proxy("http://127.0.0.1:9") as proxy:
        store = RemoteStore(moto_server.new_location(), moto_server.storage_options(endpoint_url=proxy.url))
        with pytest.raises(Exception, match="no clear answer"):
            store.put_if_absent("a", b"x")
    assert proxy.counts()["PUT"].requests >= 1
