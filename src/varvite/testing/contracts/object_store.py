"""The claims about an `ObjectStore`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError
from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
from varvite.storage.object_stores.open import open_store

ODD_NAMES = (
    "a b",
    "é/ü-ß",
    "日本語",
    "%2F%20",
    "plus+and&amp;",
    "hash#tag?query=1",
    "back\\slash",
    "quote'\"<>",
    ".hidden",
    "..dots..",
    "x/.y/..z",
    "~tilde",
    "*[glob]?",
    "s3://looks/like/a/url".replace("//", "/"),
    "a" * 255 + "/" + "b" * 255,
)
BAD_NAMES = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a\x00b", "a\nb", "x?versionId=1")


def names(metas: Sequence[ObjectMeta]) -> list[str]:
    """The names of a listing."""
    return [meta.name for meta in metas]


class ObjectStoreContract:
    """The behavior of an object store that varvite relies on.

    Override `store`, and other fixtures where their default is wrong.
    """

    @pytest.fixture
    def store(self) -> ObjectStore:
        """A new, empty store; the test's own."""
        raise NotImplementedError("override the fixture `store`: it returns a new, empty store")

    @pytest.fixture
    def many(self) -> int:
        """The number of objects in the test of many: more than a page of the store's LIST (S3: 1000), if it has one."""
        return 205

    @pytest.fixture
    def repetitions(self) -> int:
        """The number of times that a test of races writes; fewer for a store with slow requests."""
        return 160

    @pytest.fixture
    def reopen(self) -> Callable[[str], ObjectStore]:
        """Opens the store again, by its URL."""
        return open_store

    @pytest.fixture
    def odd_names(self) -> tuple[str, ...]:
        """Names with unusual characters, which the store keeps."""
        return ODD_NAMES

    @pytest.fixture
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not occur in the store's URL."""
        return ()

    def test_it_is_an_object_store(self, store: ObjectStore) -> None:
        assert isinstance(store, ObjectStore)

    def test_what_was_put_is_what_is_got(self, store: ObjectStore) -> None:
        for data in (bytes(range(256)) * 300, b"x", b""):
            store.put("a/b", data)
            assert store.get("a/b") == data

    def test_put_replaces(self, store: ObjectStore) -> None:
        store.put("a", b"long first body")
        store.put("a", b"second")
        assert store.get("a") == b"second"
        assert [meta[:2] for meta in store.list("")] == [("a", 6)]

    def test_put_if_absent_creates_once_and_never_replaces(self, store: ObjectStore) -> None:
        assert store.put_if_absent("chain/1", b"first") is True
        assert store.put_if_absent("chain/1", b"second") is False
        assert store.get("chain/1") == b"first"

    def test_put_if_absent_does_not_replace_what_put_wrote(self, store: ObjectStore) -> None:
        store.put("chain/1", b"")
        assert store.put_if_absent("chain/1", b"second") is False
        assert store.get("chain/1") == b""

    def test_an_empty_put_if_absent_does_not_cut_off_an_object(self, store: ObjectStore) -> None:
        """Some clients turn an empty exclusive write into an unconditional one."""
        store.put("chain/1", b"first")
        assert store.put_if_absent("chain/1", b"") is False
        assert store.get("chain/1") == b"first"

    def test_put_if_absent_creates_again_after_delete(self, store: ObjectStore) -> None:
        store.put_if_absent("a/b/c", b"first")
        store.delete(["a/b/c"])
        assert store.put_if_absent("a/b/c", b"second") is True
        assert store.get("a/b/c") == b"second"

    def test_sixteen_threads_race_and_exactly_one_wins(self, store: ObjectStore, repetitions: int) -> None:
        threads = 16
        with ThreadPoolExecutor(threads) as pool:
            for number in range(max(1, repetitions // 4)):
                name, start = f"race/{number}", threading.Barrier(threads)

                def run(me: int, name: str = name, start: threading.Barrier = start) -> bool:
                    start.wait()
                    return store.put_if_absent(name, b"body of %d" % me)

                won = [me for me, created in enumerate(pool.map(run, range(threads))) if created]
                assert len(won) == 1
                assert store.get(name) == b"body of %d" % won[0]

    def test_a_reader_never_sees_a_part(self, store: ObjectStore, repetitions: int) -> None:
        """Readers run while an object is replaced by others of another length."""
        bodies = [bytes([n]) * (40_000 + 20_000 * n) for n in range(3)]
        store.put("a", bodies[0])
        stop = threading.Event()

        def read() -> set[bytes]:
            seen: set[bytes] = set()
            while not stop.is_set():
                seen.add(store.get("a"))
            return seen

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for number in range(repetitions):
                store.put("a", bodies[number % 3])
            stop.set()
            for reader in readers:
                assert reader.result() <= set(bodies)

    def test_a_missing_object_is_an_error_with_its_name(self, store: ObjectStore, tmp_path: Path) -> None:
        for read in (
            lambda: store.get("no/such"),
            lambda: store.get_range("no/such", 0, 1),
            lambda: store.get_range("no/such", 0, 0),
            lambda: store.get_file("no/such", tmp_path / "fetched"),
        ):
            with pytest.raises(MissingObjectError) as raised:
                read()
            assert raised.value.context["object_name"].endswith("no/such")

    def test_a_prefix_of_names_is_no_object(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        with pytest.raises(MissingObjectError):
            store.get("a")
        store.delete(["a"])
        assert store.get("a/b") == b"x"

    def test_a_range_is_exactly_those_bytes(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        for offset, length in ((0, 10), (0, 1), (3, 4), (9, 1), (0, 0), (5, 0), (10, 0)):
            assert store.get_range("a", offset, length) == b"0123456789"[offset : offset + length]

    def test_a_range_past_the_end_is_corrupt_data(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        for offset, length in ((0, 11), (9, 2), (10, 1), (11, 0), (500, 3)):
            with pytest.raises(CorruptDataError) as raised:
                store.get_range("a", offset, length)
            assert not isinstance(raised.value, MissingObjectError)

    def test_ranges_of_an_empty_object(self, store: ObjectStore) -> None:
        store.put("a", b"")
        assert store.get_range("a", 0, 0) == b""
        with pytest.raises(CorruptDataError):
            store.get_range("a", 0, 1)

    def test_a_negative_range_is_refused(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        for offset, length in ((-1, 2), (0, -1)):
            with pytest.raises(InvalidRequestError):
                store.get_range("a", offset, length)

    def test_list_gives_names_sizes_and_times_in_order(self, store: ObjectStore) -> None:
        # In the order of UTF-8 bytes, which is neither the order of insertion nor that of a directory walk.
        expected = ["a", "b-1", "b.1", "b/1", "b/1-2/x", "b/2/x", "b/2/y", "b0", "c/é", "c/\ufffd", "c/\U0001f300"]
        for name in reversed(expected):
            store.put(name, name.encode())
        listed = store.list("")
        assert names(listed) == expected
        assert [meta.size_bytes for meta in listed] == [len(name.encode()) for name in expected]
        assert all(meta.modified_s > 1_600_000_000 for meta in listed)

    def test_list_by_prefix(self, store: ObjectStore) -> None:
        for name in ("chain/1", "chain/10", "chain/2", "chain2/1", "chai", "seg/1/op/x"):
            store.put(name, b"")
        assert names(store.list("chain/")) == ["chain/1", "chain/10", "chain/2"]
        assert names(store.list("chain/1")) == ["chain/1", "chain/10"]
        assert names(store.list("chain")) == ["chain/1", "chain/10", "chain/2", "chain2/1"]
        assert names(store.list("seg/1/")) == ["seg/1/op/x"]
        assert names(store.list("seg/1/op/x")) == ["seg/1/op/x"]
        assert names(store.list("nothing/here/")) == []
        assert names(store.list("chain/1/")) == []

    def test_list_starts_after_a_name_that_need_not_exist(self, store: ObjectStore) -> None:
        for name in ("a/1", "a/2", "a/3", "b/1/x", "b/2/x"):
            store.put(name, b"")
        assert names(store.list("a/", start_after="a/1")) == ["a/2", "a/3"]
        assert names(store.list("a/", start_after="a/11")) == ["a/2", "a/3"]
        assert names(store.list("", start_after="a/3")) == ["b/1/x", "b/2/x"]
        assert names(store.list("", start_after="b/1")) == ["b/1/x", "b/2/x"]
        assert names(store.list("", start_after="b/1/x")) == ["b/2/x"]
        assert names(store.list("a/", start_after="b")) == []
        assert names(store.list("b/", start_after="a")) == ["b/1/x", "b/2/x"]

    def test_list_sees_at_once_what_was_written_and_deleted(self, store: ObjectStore) -> None:
        for number in range(8):
            store.put_if_absent(f"chain/{number}", b"x")
            assert names(store.list("chain/", start_after=f"chain/{number - 1}" if number else "")) == [
                f"chain/{number}"
            ]
        store.delete(["chain/3"])
        assert "chain/3" not in names(store.list("chain/"))

    def test_list_and_delete_many(self, store: ObjectStore, many: int) -> None:
        expected = [f"seg/{n // 100:02d}/{n:020d}" for n in range(many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.put(name, b"x"), expected))
        assert names(store.list("seg/")) == expected
        assert names(store.list("seg/", start_after=expected[30])) == expected[31:]
        store.delete(expected[1:])
        assert names(store.list("")) == expected[:1]

    def test_delete_of_missing_names_is_fine(self, store: ObjectStore) -> None:
        store.put("a", b"x")
        store.delete([])
        store.delete(["nothing"])
        store.delete(["nothing", "a", "a/b", "not/here"])
        assert names(store.list("")) == []

    def test_delete_takes_any_iterable(self, store: ObjectStore) -> None:
        for name in ("a", "b", "c"):
            store.put(name, b"x")
        store.delete(name for name in ("a", "c"))
        assert names(store.list("")) == ["b"]

    def test_odd_names_are_kept_as_they_are(self, store: ObjectStore, odd_names: tuple[str, ...]) -> None:
        for name in odd_names:
            assert store.put_if_absent(name, name.encode())
        assert names(store.list("")) == sorted(odd_names)
        for name in odd_names:
            assert store.get(name) == name.encode()
            assert store.get_range(name, 1, 1) == name.encode()[1:2]
            assert name in names(store.list(name))
            assert not store.put_if_absent(name, b"other")
        store.delete(odd_names)
        assert names(store.list("")) == []

    def test_names_that_no_store_could_keep_are_refused(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"x")
        calls: tuple[Callable[[str], object], ...] = (
            lambda name: store.put(name, b""),
            lambda name: store.put_if_absent(name, b""),
            store.get,
            lambda name: store.get_range(name, 0, 1),
            lambda name: store.delete([name]),
            lambda name: store.put_file(name, tmp_path / "file"),
            lambda name: store.get_file(name, tmp_path / "fetched"),
        )
        for name in BAD_NAMES:
            for call in calls:
                with pytest.raises(InvalidRequestError):
                    call(name)
        assert names(store.list("")) == []

    def test_prefixes_that_could_leave_the_store_are_refused(self, store: ObjectStore) -> None:
        for prefix in ("/", "/a", "../", "a/../", "a//", "a\x00"):
            with pytest.raises(InvalidRequestError):
                store.list(prefix)

    def test_files_go_in_and_out(self, store: ObjectStore, tmp_path: Path) -> None:
        for size_bytes in (70_000, 0):
            data = random.Random(3).randbytes(size_bytes)
            (tmp_path / "in").write_bytes(data)
            (tmp_path / "out").write_bytes(b"was there before")
            store.put("snapdata/1", b"replaced by the file")
            store.put_file("snapdata/1", tmp_path / "in")
            store.get_file("snapdata/1", tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == data == store.get("snapdata/1")

    def test_a_large_file_goes_in_and_out(self, store: ObjectStore, tmp_path: Path) -> None:
        """40 MB: stores that send in parts do it here."""
        block = random.Random(5).randbytes(1 << 20)
        data = b"".join(bytes([n]) + block for n in range(40))
        (tmp_path / "in").write_bytes(data)
        store.put_file("snapdata/large", tmp_path / "in")
        store.get_file("snapdata/large", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == data
        assert store.get_range("snapdata/large", len(data) - 7, 7) == data[-7:]
        assert [meta.size_bytes for meta in store.list("snapdata/")] == [len(data)]

    def test_get_file_leaves_nothing_behind_when_it_fails(self, store: ObjectStore, tmp_path: Path) -> None:
        target = tmp_path / "fetched"
        target.mkdir()
        (target / "there before").write_bytes(b"kept")
        with pytest.raises(MissingObjectError):
            store.get_file("no/such", target / "there before")
        with pytest.raises(MissingObjectError):
            store.get_file("no/such", target / "new")
        assert [path.name for path in target.iterdir()] == ["there before"]
        assert (target / "there before").read_bytes() == b"kept"

    def test_a_linked_file_is_the_object_and_stays(self, store: ObjectStore, tmp_path: Path) -> None:
        for number, after in enumerate((lambda: store.delete(["a"]), lambda: store.put("a", b"other"))):
            path = tmp_path / f"file-{number}"
            store.put("a", b"x" * 5000)
            if store.link_file("a", path):
                after()
                assert path.read_bytes() == b"x" * 5000
            else:
                assert not path.exists()

    def test_a_link_never_replaces_and_needs_an_object(self, store: ObjectStore, tmp_path: Path) -> None:
        store.put("a", b"x")
        links = store.link_file("a", tmp_path / "linked")
        (tmp_path / "there").write_bytes(b"kept")
        for name, path, error in (("no/such", "new", MissingObjectError), ("a", "there", InvalidRequestError)):
            if links:
                with pytest.raises(error):
                    store.link_file(name, tmp_path / path)
            else:
                assert not store.link_file(name, tmp_path / path)
        assert not (tmp_path / "new").exists()
        assert (tmp_path / "there").read_bytes() == b"kept"

    def test_local_paths_that_cannot_be_are_refused(self, store: ObjectStore, tmp_path: Path) -> None:
        store.put("a", b"x")
        with pytest.raises(InvalidRequestError):
            store.put_file("b", tmp_path / "no such file")
        with pytest.raises(InvalidRequestError):
            store.put_file("b", tmp_path)
        with pytest.raises(InvalidRequestError):
            store.get_file("a", tmp_path / "no such directory" / "file")
        assert names(store.list("")) == ["a"]

    def test_the_url_opens_the_same_store_and_has_no_secrets(
        self, store: ObjectStore, reopen: Callable[[str], ObjectStore], secrets: tuple[str, ...]
    ) -> None:
        store.put("a/b", b"x")
        reopened = reopen(store.url)
        assert reopened.get("a/b") == b"x"
        assert names(reopened.list("")) == ["a/b"]
        assert reopened.url == store.url
        for secret in secrets:
            assert secret not in store.url
