"""Stores by URL, and URLs that are refused."""

from __future__ import annotations

import os
import socket
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingObjectError, VarviteError
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.open import open_like, open_store
from varvite.storage.object_stores.prefixed import PrefixedStore, substore
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from pathlib import Path


def test_paths_and_file_urls_are_local_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"{tmp_path}/a b%20", f"file://{tmp_path}/a b%20", f"file:{tmp_path}/a b%20", "./a b%20", "a b%20"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == f"file://{tmp_path}/a b%20"
    assert open_store(f"file://localhost{tmp_path}").url == f"file://{tmp_path}"


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_store(f"{tmp_path}/new").list("")
    assert list(tmp_path.iterdir()) == []


def test_memory_urls_name_one_store_per_process() -> None:
    name = uuid.uuid4().hex
    open_store(f"memory://{name}").put("job/a", b"x")
    assert open_store(f"memory://{name}/").get("job/a") == b"x"
    assert open_store(f"memory://{name}/job").get("a") == b"x"
    with pytest.raises(MissingObjectError):
        open_store(f"memory://{name}2").get("job/a")


def test_a_memory_store_is_found_by_its_url_and_its_name_is_taken() -> None:
    name = uuid.uuid4().hex
    store = MemoryStore(name)
    assert open_store(store.url) is store
    with pytest.raises(InvalidRequestError, match="taken"):
        MemoryStore(name)
    assert MemoryStore().url != MemoryStore("other" + name).url


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endpoint": "http://x"}, "did you mean 'endpoint_url'"),
        ({"config_kwargs": "read_timeout=5"}, "config_kwargs is no JSON object"),
        ({"config_kwargs": [5]}, "config_kwargs is no JSON object"),
        ({"config_kwargs": {"read_timeot": 5}}, "config_kwargs cannot be used: .*'read_timeot'"),
        ({"client_kwargs": "eu"}, "client_kwargs is no JSON object"),
        ({"client_kwargs": {"regoin_name": "eu"}}, "did you mean 'region_name'"),
    ],
)
def test_s3_options_that_cannot_be_right_are_told_before_any_request(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        open_store("s3://bucket/a", options)


def test_s3_options_of_the_client_and_its_configuration_are_taken() -> None:
    given = {"client_kwargs": {"region_name": "eu", "verify": False}, "config_kwargs": {"read_timeout": 5}}
    assert open_store("s3://bucket/a", given).url == "s3://bucket/a"


def test_s3_urls_are_fsspec_stores_without_a_request() -> None:
    for url in ("s3://bucket/a/b", "s3a://bucket/a/b"):
        store = open_store(url + "/", {"key": "k", "secret": "s3cr3t"})
        assert isinstance(store, RemoteStore)
        assert store.url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "not a storage location"),
        ("://x", "not a storage location"),
        ("s4://bucket/x", "did you mean s3://"),
        ("s3n://bucket/x", "did you mean s3://"),
        ("minio://bucket/x", "did you mean s3://"),
        ("flie:///x", "did you mean file://"),
        ("memroy://x", "did you mean memory://"),
        (
            "zzzzzzzz://x",
            "no known kind of storage; supported are paths and file://.* s3://, gs://, abfss:// and hdfs://",
        ),
        ("wasbz://container/x", "supported are"),
        ("file://host/x", "three slashes"),
        ("file:x", "not absolute"),
        ("s3://", "not a storage URL"),
        ("s3://key:s3cr3t@bucket/x", "credentials"),
        ("s3:/key:a/s3cr3t@bucket/x", "write s3://bucket/x"),
        ("abfss://key:s3cr3t@account.dfs.core.windows.net/x", "credentials"),
        ("gs://key:s3cr3t@bucket/x", "credentials"),
        ("3s://key:a/s3cr3t@bucket/x", "not a storage location"),
        ("file://me:s3cr3t@host/x", "names the host 'host'"),
        ("s3://bucket/x?versionId=1", "query"),
        ("simplecache::s3://bucket/x", "not a storage location"),
    ],
)
def test_urls_that_cannot_be_are_refused_with_advice(url: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as raised:
        open_store(url)
    assert "s3cr3t" not in str(raised.value)


def test_wrong_storage_options_are_refused(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}", "memory://x"):
        with pytest.raises(InvalidRequestError, match="takes no storage options"):
            open_store(url, {"secret": "s3cr3t"})
    with pytest.raises(InvalidRequestError, match="storage options"):
        open_store("s3://bucket/x", {"max_concurrency": 0}).list("")


def test_a_file_is_no_storage_location(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRequestError, match="not a directory"):
        open_store(str(tmp_path / "file"))


def test_substores_share_nothing_but_their_root(tmp_path: Path) -> None:
    root = LocalStore(tmp_path)
    one, two = substore(root, "one"), substore(root, "two")
    one.put("a", b"1")
    two.put("a", b"2")
    assert (one.get("a"), two.get("a")) == (b"1", b"2")
    assert [meta.name for meta in one.list("")] == ["a"]
    assert one.url == f"file://{tmp_path}/one"
    assert substore(root, "") is root
    for prefix in ("../one", "a/", "/a"):
        with pytest.raises(InvalidRequestError):
            PrefixedStore(root, prefix)


@pytest.fixture
def other(tmp_path: Path) -> RemoteStore:
    """A filesystem of which only fsspec's common interface is known."""
    return RemoteStore(f"local://{tmp_path}/root")


def test_put_if_absent_is_refused_where_exclusive_create_is_not_known(other: RemoteStore, tmp_path: Path) -> None:
    """fsspec's local and memory filesystems look first and write then: several threads would win."""
    for store in (other, RemoteStore(f"memory:///{uuid.uuid4().hex}")):
        store.put("a", b"first")
        with pytest.raises(InvalidRequestError, match="not known to write an object only if it is absent"):
            store.put_if_absent("a", b"second")
        with pytest.raises(InvalidRequestError, match="not known"):
            store.put_if_absent("b", b"second")
        assert [(meta.name, store.get(meta.name)) for meta in store.list("")] == [("a", b"first")]


def test_the_user_may_vouch_for_exclusive_create(tmp_path: Path) -> None:
    store = open_store(f"local://{tmp_path}/root", {"exclusive_create": True})
    assert store.put_if_absent("a/b", b"first") is True
    assert store.put_if_absent("a/b", b"second") is False
    assert store.get("a/b") == b"first"


def test_other_fsspec_filesystems_keep_the_rest_of_the_contract(other: RemoteStore, tmp_path: Path) -> None:
    for store in (other, RemoteStore(f"memory:///{uuid.uuid4().hex}")):
        store.put("a/b", b"0123456789")
        store.put("a/c", b"")
        assert store.get_range("a/b", 2, 3) == b"234"
        assert [meta[:2] for meta in store.list("a/")] == [("a/b", 10), ("a/c", 0)]
        assert [meta.name for meta in store.list("a/", start_after="a/b")] == ["a/c"]
        assert store.list("none/") == []
        store.get_file("a/b", tmp_path / "out")
        store.put_file("d", tmp_path / "out")
        assert store.get("d") == b"0123456789"
        store.delete(["a/b", "none"])
        with pytest.raises(MissingObjectError):
            store.get("a/b")


def test_a_relative_path_is_fixed_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("here")
    monkeypatch.chdir(os.sep)
    store.put("a", b"x")
    assert (tmp_path / "here" / "a").read_bytes() == b"x"


def test_another_store_is_opened_alike_if_it_is_of_the_same_kind(tmp_path: Path) -> None:
    root = open_store("s3://bucket/x", {"key": "k", "secret": "s3cr3t"})
    assert isinstance(root, RemoteStore)
    beside = open_like(root, "s3://other/log")
    assert isinstance(beside, RemoteStore)
    assert beside.storage_options == root.storage_options
    assert beside.url == "s3://other/log"
    also = open_like(root, "s3a://other/log")
    assert isinstance(also, RemoteStore)
    assert also.storage_options == root.storage_options, "s3:// and s3a:// are one kind"
    assert open_like(root, str(tmp_path)).url == f"file://{tmp_path}"
    unlike = open_like(open_store(str(tmp_path)), "s3://other/log")
    assert isinstance(unlike, RemoteStore)
    assert unlike.storage_options == {"exclusive_create": False}


@pytest.mark.parametrize("url", ["s3:/bucket/x", "s3:bucket", "S3A:/b", "http:/host/x"])
def test_a_url_with_a_slash_too_few_is_no_directory(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match=f"write {url.partition(':')[0].lower()}://"):
        open_store(url)
    assert open_store(f"./{url}").list("") == []
    assert open_store("my:directory").list("") == []


def test_a_storage_that_cannot_be_reached_is_not_an_empty_one() -> None:
    """fsspec's `find` leaves out what it cannot read."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        store = open_store(f"http://127.0.0.1:{taken.getsockname()[1]}/x")
        with pytest.raises(DidNotHappenError, match="no answer"):
            store.list("")


def test_a_directory_that_cannot_be_read_is_not_left_out(other: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pin that is not listed would keep nothing (I7)."""
    other.put("pins/one", b"x")
    real = type(other._clients.client()).ls

    def ls(fs: Any, path: str, **options: Any) -> Any:
        if path.endswith("/pins"):
            raise PermissionError(13, "not yours", path)
        return real(fs, path, **options)

    monkeypatch.setattr(type(other._clients.client()), "ls", ls)
    with pytest.raises(VarviteError):
        other.list("")


def test_a_mistyped_option_of_s3_is_named_before_a_request() -> None:
    with pytest.raises(InvalidRequestError, match=r"'endpint_url' is no storage .*'endpoint_url'"):
        open_store("s3://bucket/x", {"endpint_url": "http://127.0.0.1"})
    known = {"anon": True, "config_kwargs": {}, "client_kwargs": {}, "profile": "p", "skip_instance_cache": True}
    assert open_store("s3://bucket/x", known).url == "s3://bucket/x"
