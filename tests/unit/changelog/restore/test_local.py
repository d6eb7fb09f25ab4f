"""The directories of local recovery: who holds them, and what is swept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from varvite.changelog.restore.local import (
    COPIES_MAX,
    CopyRange,
    LocalCopies,
    LocalCopy,
    LocalRecovery,
)
from varvite.storage.errors import InvalidRequestError

KEY = CopyRange("job", "count", 0, 4)
DAY_MS = 86_400_000


def filled(copy: LocalCopy, size_bytes: int = 10, used_s: float | None = None) -> Path:
    """The copy with a file in it; free again."""
    copy.directory.mkdir()
    (copy.directory / "1.sst").write_bytes(bytes(size_bytes))
    copy.release()
    if used_s is not None:
        for path in (copy.directory, copy.directory / "1.sst", copy.directory.with_name(f"{copy.directory.name}.lock")):
            os.utime(path, (used_s, used_s))
    return copy.directory


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_copy_that_is_held_is_nobody_elses(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    first = copies.new(KEY)
    assert first.directory == tmp_path / "job" / "count" / "00000-00004" / "0"
    first.directory.mkdir()
    assert copies.free(KEY) == []
    second = copies.new(KEY)
    assert second.directory.name == "1"
    first.release()
    (again,) = copies.free(KEY)
    assert again.directory == first.directory
    again.release()
    second.release()


def test_a_range_is_in_use_while_somebody_holds_a_copy_be_it_an_empty_one(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    assert not copies.is_in_use(KEY)
    with_state, empty = copies.new(KEY), copies.new(KEY)
    with_state.directory.mkdir()
    for copy in (with_state, empty):
        assert copies.is_in_use(KEY)
        copy.release()
    assert not copies.is_in_use(KEY)
    (again,) = copies.free(KEY)
    assert again.directory == with_state.directory, "to look leaves no trace"
    again.release()


def test_every_range_has_copies_of_its_own(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    others = [
        KEY._replace(job_id="other"),
        KEY._replace(operator="a/b"),
        KEY._replace(operator=".."),
        KEY._replace(high=5),
    ]
    made = [copies.new(key) for key in (KEY, *others, KEY._replace(operator="x" * 500))]
    assert len({copy.directory for copy in made}) == len(made)
    assert all(copy.directory.resolve().is_relative_to(tmp_path.resolve()) for copy in made)


def test_the_end_of_a_process_frees_its_copy(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from varvite.changelog.restore.local import CopyRange, LocalCopies\n"
        "copy = LocalCopies(Path(sys.argv[1])).new(CopyRange('job', 'count', 0, 4)); copy.directory.mkdir()\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    copies = LocalCopies(tmp_path)
    assert copies.free(KEY) == []
    assert [path.name for path in copies.directories(KEY)] == ["0"]
    holder.kill()
    holder.communicate()
    (copy,) = copies.free(KEY)
    copy.release()


def test_a_removed_copy_leaves_nothing(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    first, second = copies.new(KEY), copies.new(KEY)
    for copy in (first, second):
        for name in ("", ".restore", ".stale", ".checkpoint"):
            copy.directory.with_name(f"{copy.directory.name}{name}").mkdir()
    first.remove()
    assert sorted(path.name for path in second.directory.parent.iterdir()) == [
        "1", "1.checkpoint", "1.lock", "1.restore", "1.stale",
    ]  # fmt: skip
    second.discard()
    assert [path.name for path in second.directory.parent.iterdir()] == ["1.lock"]
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_copies_whose_numbers_begin_alike_are_different_copies(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    made = [copies.new(KEY) for _ in range(12)]
    for copy in made:
        copy.directory.mkdir()
    made[1].remove()
    assert len(copies.directories(KEY)) == 11


def test_a_copy_without_its_lock_file_is_found(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    directory = filled(copies.new(KEY))
    directory.with_name("0.lock").unlink()
    assert [copy.directory for copy in copies.free(KEY)] == [directory]


def test_whoever_holds_a_copy_says_whether_it_is_worth_waiting(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    directory = filled(copies.new(KEY))
    (copy,) = copies.free(KEY)
    told: list[bool] = [copies.is_held_briefly(KEY)]
    for brief in (True, False, True):
        copy.mark_brief(brief)
        told.append(copies.is_held_briefly(KEY))
    assert told == [False, True, False, True]
    copy.release()
    (copy,) = copies.free(KEY)
    assert not copies.is_held_briefly(KEY), "what a dead process has said counts no more"
    assert copy.directory == directory
    copy.release()


def test_there_is_a_limit(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    made = [copies.new(KEY) for _ in range(COPIES_MAX)]
    with pytest.raises(InvalidRequestError, match="'count'"):
        copies.new(KEY)
    made[3].release()
    assert copies.new(KEY).directory.name == "3"


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequestError, match=r"local-backup\.dirs"):
        LocalCopies(tmp_path / "file" / "below").new(KEY)


def test_what_nobody_uses_is_swept_by_age(tmp_path: Path) -> None:
    copies, now_s = LocalCopies(tmp_path), time.time()
    old = filled(copies.new(KEY), used_s=now_s - 1000)
    new = filled(copies.new(KEY._replace(operator="new")), used_s=now_s - 10)
    held = copies.new(KEY._replace(operator="held"))
    filled(held, used_s=now_s - 1000)
    (held,) = copies.free(KEY._replace(operator="held"))
    assert copies.sweep(100_000, None, now_ms()) == (old,)
    assert not old.parent.parent.exists()
    assert new.exists()
    assert held.directory.exists()
    held.release()


def test_what_nobody_uses_is_swept_by_size_the_oldest_first(tmp_path: Path) -> None:
    copies, now_s = LocalCopies(tmp_path), time.time()
    made = [filled(copies.new(KEY._replace(low=i)), 100, now_s - 100 + i) for i in range(4)]
    assert copies.sweep(DAY_MS, 400, now_ms()) == ()
    assert copies.sweep(DAY_MS, 250, now_ms()) == (made[0], made[1])
    assert copies.sweep(DAY_MS, 0, now_ms()) == (made[2], made[3])
    assert list(tmp_path.iterdir()) == []


def test_a_lock_without_state_is_swept_too(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    copies.new(KEY).release()
    assert len(copies.sweep(0, None, now_ms() + 60_000)) == 1
    assert list(tmp_path.iterdir()) == []


def test_partitions_are_spread_over_the_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = LocalRecovery(directories=(str(tmp_path / "a"), str(tmp_path / "b")))
    name = f"varvite-local-state-{os.geteuid()}"
    assert [chosen.root(partition) for partition in range(3)] == [tmp_path / d / name for d in "aba"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert LocalRecovery().root(5) == tmp_path / "cache" / "varvite" / "local-state"
    assert LocalRecovery().root(5).stat().st_mode & 0o777 == 0o700


FOREIGN = (
    "src/rust/app/Cargo.lock", "src/rust/app/Cargo.toml", "a/b/c/poetry.lock", "a/b/c/poetry.toml", "a/b/c/uv.lock",
    "a/b/c/uv/file", "job/count/00000-00004/poetry.lock", "job/count/00000-00004/7.lock",
    "job/count/00000-00004/7/file", "job/count/00000-00004/7.txt",
)  # fmt: skip


@pytest.mark.parametrize("below_root", [False, True], ids=["in the directory that an option names", "below the root"])
def test_files_of_others_are_neither_emptied_nor_deleted(tmp_path: Path, below_root: bool) -> None:
    """`Cargo.lock`, `poetry.lock` and `uv.lock` of a home directory were emptied at once, and deleted a day later."""
    policy = LocalRecovery(directories=(str(tmp_path),))
    base = policy.root(0) if below_root else tmp_path
    for name in FOREIGN:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("somebody's")
        os.utime(base / name, (1, 1))
    copies = LocalCopies(policy.root(0))
    old = filled(copies.new(KEY), used_s=1)
    assert copies.sweep(0, 0, now_ms() + DAY_MS) == (old,)
    assert [copy.directory for copy in copies.free(KEY)] == []
    assert copies.new(KEY).directory.name == "0"
    assert {name: (base / name).read_text() for name in FOREIGN} == dict.fromkeys(FOREIGN, "somebody's")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    copies, victim = LocalCopies(tmp_path), tmp_path / "victim"
    victim.write_bytes(b"brief")
    directory = filled(copies.new(KEY))
    lock = directory.with_name("0.lock")
    lock.unlink()
    lock.symlink_to(victim)
    assert copies.free(KEY) == []
    assert copies.sweep(0, 0, now_ms() + DAY_MS) == ()
    assert (victim.read_bytes(), directory.is_dir()) == (b"brief", True)
