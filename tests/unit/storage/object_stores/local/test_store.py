"""The local store: what is durable when, and what each failure of the disk means."""

from __future__ import annotations

import errno
import gc
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.object_stores.local.directories import DurableDirectories
from varvite.storage.object_stores.local.errors import did_not_happen, may_have_happened
from varvite.storage.object_stores.local.store import STALE_S, TEMPORARY, LocalStore
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def left_over(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "store" / TEMPORARY).iterdir())


def open_below(directory: Path) -> list[str]:
    """Files that this process has open there."""
    found: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of another thread, and closed meanwhile
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(directory))]


class Disk:
    """Records, and can fail, the calls that make an object durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        for name in ("fsync", "link", "replace"):
            monkeypatch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def _recorded(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            label = name
            if name == "fsync":
                target = arguments[0]
                assert isinstance(target, int)
                label = "fsync " + ("directory" if Path(f"/proc/self/fd/{target}").is_dir() else "file")
            self.calls.append(label)
            if label in self.fail:
                raise OSError(self.fail[label], os.strerror(self.fail[label]))
            real(*arguments, **options)

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_the_second_object_of_a_directory_costs_one_file_and_one_directory_sync(store: LocalStore, disk: Disk) -> None:
    store.put_if_absent("chain/1", b"x")
    first = list(disk.calls)
    disk.calls.clear()
    store.put_if_absent("chain/2", b"x")
    assert disk.calls == ["fsync file", "link", "fsync directory"]
    disk.calls.clear()
    store.put("chain/2", b"y")
    assert disk.calls == ["fsync file", "replace", "fsync directory"]
    # The first one also made root, chain/ and the temporary directory durable.
    assert first.count("fsync directory") >= 4


def test_a_new_process_syncs_directories_that_another_made(store: LocalStore, disk: Disk, tmp_path: Path) -> None:
    """The other one may have died between making the directory and syncing it."""
    store.put("seg/1/a", b"x")
    disk.calls.clear()
    LocalStore(tmp_path / "store").put("seg/1/b", b"x")
    # root for seg, seg for 1, root for the temporary directory, and 1 for the object.
    assert disk.calls.count("fsync directory") == 4


def test_a_lost_put_if_absent_syncs_what_the_winner_made(store: LocalStore, disk: Disk) -> None:
    """The winner may have died before its sync; what the loser reads next must be durable."""
    store.put_if_absent("chain/1", b"x")
    disk.calls.clear()
    assert store.put_if_absent("chain/1", b"y") is False
    assert disk.calls[-2:] == ["link", "fsync directory"]


@pytest.mark.parametrize("failing", ["fsync file", "link"])
def test_a_full_disk_did_not_happen_and_leaves_nothing(
    store: LocalStore, disk: Disk, tmp_path: Path, failing: str
) -> None:
    store.put("chain/1", b"x")
    disk.fail[failing] = errno.ENOSPC
    with pytest.raises(DidNotHappenError, match="disk is full") as raised:
        store.put_if_absent("chain/2", b"y")
    assert raised.value.context["object_name"] == "chain/2"
    assert [meta.name for meta in store.list("")] == ["chain/1"]
    assert left_over(tmp_path) == []
    disk.fail.clear()
    assert store.put_if_absent("chain/2", b"y") is True


def test_an_unsynced_create_is_taken_away_again(store: LocalStore, disk: Disk) -> None:
    """Left there, reading it back would look like a durable success."""
    store.put("chain/1", b"x")
    disk.fail["fsync directory"] = errno.EIO
    with pytest.raises(MayHaveHappenedError, match="not known to be durable"):
        store.put_if_absent("chain/2", b"y")
    assert [meta.name for meta in store.list("")] == ["chain/1"]
    with pytest.raises(MayHaveHappenedError):
        claim(store, "chain/2", b"z" * 32, "z" * 32, SystemClock())
    disk.fail.clear()
    assert claim(store, "chain/2", b"z" * 32, "z" * 32, SystemClock()).won


def test_an_unsynced_replacement_may_have_happened(store: LocalStore, disk: Disk) -> None:
    store.put("a", b"x")
    disk.fail["fsync directory"] = errno.EIO
    with pytest.raises(MayHaveHappenedError):
        store.put("a", b"y")


@pytest.mark.parametrize(
    ("code", "expected", "advice"),
    [
        (errno.EACCES, InvalidRequestError, "permission"),
        (errno.EROFS, InvalidRequestError, "read-only"),
        (errno.ENOTDIR, InvalidRequestError, "not a directory"),
        (errno.EXDEV, InvalidRequestError, "one filesystem"),
        (errno.ENOTSUP, InvalidRequestError, "no hard links"),
        (errno.ENAMETOOLONG, InvalidRequestError, "shorter"),
        (errno.ENOSPC, DidNotHappenError, "disk is full"),
        (errno.EDQUOT, DidNotHappenError, "quota"),
        (errno.EMFILE, DidNotHappenError, "open files"),
        (errno.EINTR, DidNotHappenError, "try again"),
    ],
)
def test_each_failure_says_what_is_known_and_what_to_do(code: int, expected: type[Exception], advice: str) -> None:
    error = OSError(code, os.strerror(code))
    found = did_not_happen(error, "writing /x", "a")
    assert type(found) is expected
    assert advice in str(found)
    assert "writing /x" in str(found)
    assert found.context == {"object_name": "a"}
    assert type(may_have_happened(error, "syncing", "a")) is MayHaveHappenedError


def test_a_failed_rename_or_link_of_a_sick_disk_may_have_happened(store: LocalStore, disk: Disk) -> None:
    for call in (lambda: store.put("a", b"x"), lambda: store.put_if_absent("b", b"x")):
        disk.fail = {"link": errno.EIO, "replace": errno.EIO}
        with pytest.raises(MayHaveHappenedError):
            call()


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_directory_without_permission_is_an_invalid_request(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(InvalidRequestError, match="permission"):
        store.put("a", b"x")


def test_an_object_cannot_lie_below_an_object_nor_above_one(store: LocalStore) -> None:
    store.put("a", b"x")
    store.put("b/c", b"y")
    for call in (
        lambda: store.put("a/b", b""),
        lambda: store.put_if_absent("a/b", b""),
        lambda: store.put("b", b""),
        lambda: store.put_if_absent("b", b""),
    ):
        with pytest.raises(InvalidRequestError):
            call()
    assert [meta.name for meta in store.list("")] == ["a", "b/c"]


def test_a_root_that_becomes_a_file_is_an_invalid_request(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(InvalidRequestError, match="directory"):
        store.put("a", b"x")


def test_a_root_that_cannot_be_is_refused_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the operating system came out as it was."""
    for root in (tmp_path / ("a" * 300), f"{tmp_path}/a\0b"):
        with pytest.raises(InvalidRequestError, match=r"too long|zero character"):
            LocalStore(root)

    def stat(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", stat)  # whoever runs tests as root may look everywhere
    with pytest.raises(InvalidRequestError, match="permission denied: give this process"):
        LocalStore(tmp_path / "locked" / "in")


def test_temporary_files_are_never_objects(store: LocalStore, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "store" / TEMPORARY / "stale").write_bytes(b"from a crash")
    assert [meta.name for meta in store.list("")] == ["a"]
    assert store.list(".") == []
    assert store.list(f"{TEMPORARY}/") == []
    for call in (lambda: store.get(f"{TEMPORARY}/stale"), lambda: store.put(TEMPORARY, b"")):
        with pytest.raises(InvalidRequestError, match="reserved"):
            call()
    store.put(f"x/{TEMPORARY}", b"elsewhere it is a name like any other")
    assert [meta.name for meta in store.list("x/")] == [f"x/{TEMPORARY}"]


def test_what_killed_writers_have_left_is_removed_by_a_later_process(store: LocalStore, tmp_path: Path) -> None:
    """Nothing else ever looks there: each process that was killed while it wrote left a file for ever (I10)."""
    store.put("a", b"x")
    now_s = (tmp_path / "store" / "a").stat().st_mtime
    for name, age_s in (("being-written", STALE_S - 60), ("left", STALE_S + 60), ("left-too", 30 * STALE_S)):
        path = tmp_path / "store" / TEMPORARY / name
        path.write_bytes(b"a part")
        os.utime(path, (now_s - age_s, now_s - age_s))
    LocalStore(tmp_path / "store").list("")
    assert len(left_over(tmp_path)) == 3
    LocalStore(tmp_path / "store").put_if_absent("b", b"x")
    assert [path.name for path in left_over(tmp_path)] == ["being-written"]


def test_a_writer_whose_temporary_file_was_removed_fails_and_nothing_has_happened(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still for longer than a temporary file is kept."""
    with monkeypatch.context() as patched:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            for path in left_over(tmp_path):
                path.unlink()

        patched.setattr(os, "fsync", fsync)
        for write in (store.put, store.put_if_absent):
            with pytest.raises(DidNotHappenError):
                write("chain/1", b"x")
    assert store.list("") == []
    assert store.put_if_absent("chain/1", b"y")


def test_delete_removes_directories_that_it_leaves_empty(store: LocalStore, tmp_path: Path) -> None:
    """Otherwise every slot would leave a directory behind for ever (I10)."""
    for slot in range(20):
        store.put(f"seg/{slot}/op/x", b"")
    store.put("seg/5/op/y", b"")
    store.delete([f"seg/{slot}/op/x" for slot in range(20)])
    assert [path.name for path in (tmp_path / "store" / "seg").iterdir()] == ["5"]
    store.put("seg/7/op/x", b"again")
    assert store.get("seg/7/op/x") == b"again"


def test_writers_survive_a_deleter_that_removes_their_directory(store: LocalStore, tmp_path: Path) -> None:
    """Another process collects garbage: the remembered directory is another one, or none, when it is used again."""
    collector = LocalStore(tmp_path / "store")
    for number in range(50):
        assert store.put_if_absent("seg/1/x", b"%d" % number)
        collector.delete(["seg/1/x"])
    store.put("seg/1/x", b"last")
    assert collector.get("seg/1/x") == b"last"


def test_a_store_whose_root_was_removed_starts_again(store: LocalStore, tmp_path: Path) -> None:
    store.put("chain/1", b"x")
    (tmp_path / "store").rename(tmp_path / "moved away")
    assert store.list("") == []
    assert store.put_if_absent("chain/1", b"y") is True
    assert (tmp_path / "store" / "chain" / "1").read_bytes() == b"y"
    assert (tmp_path / "moved away" / "chain" / "1").read_bytes() == b"x"


def test_open_directories_are_bounded(tmp_path: Path) -> None:
    directories = DurableDirectories(tmp_path, open_max=4)
    # Not all files of the process: other tests have left some to garbage collection.
    with directories.lease("held") as fd:
        for number in range(30):
            with directories.lease(f"d/{number}"):
                pass
        assert len(open_below(tmp_path)) <= 5
        os.fstat(fd)
    assert len(open_below(tmp_path)) <= 4
    for number in range(30):
        directories.drop(f"d/{number}")
    assert open_below(tmp_path) == []


def run_in_child(work: Callable[[], None]) -> int:
    """Fork, run, and return the wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def test_a_store_that_nobody_uses_keeps_nothing_open(tmp_path: Path) -> None:
    """Every query has a store of its own: a driver that starts many ran out of descriptors."""
    store = LocalStore(tmp_path / "store")
    for n in range(5):
        store.put(f"{n}/object", b"x")
    assert len(open_below(tmp_path)) > 5
    del store
    gc.collect()
    assert open_below(tmp_path) == []


def test_a_forked_child_can_write_although_a_lock_was_held_at_the_fork(store: LocalStore) -> None:
    store.put("chain/1", b"x")
    with store._directories._lock:  # as if another thread of the parent were inside
        status = run_in_child(lambda: store.put("chain/2", b"y"))
    assert status == 0
    assert store.get("chain/2") == b"y"


@pytest.mark.parametrize("operation", ["put", "put_if_absent"])
def test_a_writer_killed_anywhere_leaves_the_whole_object_or_none(tmp_path: Path, operation: str) -> None:
    """SIGKILL before each call that touches the disk."""
    data, outcomes = b"body" * 5000, set[bool]()
    for step in range(40):
        root = tmp_path / str(step)

        def work(root: Path = root, step: int = step) -> None:
            left = [step]
            for name in ("fsync", "link", "replace", "unlink", "mkdir", "open"):
                real = getattr(os, name)

                def call(*arguments: object, _real: Callable[..., object] = real, **options: object) -> object:
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return _real(*arguments, **options)

                setattr(os, name, call)
            getattr(LocalStore(root), operation)("chain/1", data)

        status = run_in_child(work)
        after = LocalStore(root)
        found = [meta.name for meta in after.list("")]
        assert found in ([], ["chain/1"])
        if found:
            assert after.get("chain/1") == data
        outcomes.add(bool(found))
        assert after.put_if_absent("chain/1", b"next") is not bool(found)
        if os.WIFEXITED(status):
            assert found
            break
    else:
        pytest.fail("the writer never came to its end")
    assert outcomes == {True, False}
