"""Directories that only this user may enter, and that nobody else can have prepared."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import (
    MARKER,
    TemporaryDirectory,
    given_directory,
    make_private,
    user_directory,
)

OPTION = "some.option"
NAME = f"varvite-work-{os.geteuid()}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_this_user_can_enter_whatever_the_umask(cache: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = [user_directory("work", OPTION), given_directory(cache / "given" / "deep", "work", OPTION)]
    finally:
        os.umask(before)
    assert made == [cache / "cache" / "varvite" / "work", cache / "given" / "deep" / NAME]
    for directory in (*made, made[0].parent):
        assert mode(directory) == 0o700
        assert "varvite" in (directory / MARKER).read_text()
    assert made == [user_directory("work", OPTION), given_directory(cache / "given" / "deep", "work", OPTION)]


def test_a_user_without_a_cache_directory_has_one_of_the_session(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert user_directory("work", OPTION) == cache / "home" / ".cache" / "varvite" / "work"
    monkeypatch.setenv("HOME", str(cache / "file"))
    assert user_directory("work", OPTION) == cache / "runtime" / "varvite" / "work"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    with pytest.raises(InvalidRequestError, match=r"set some\.option, or XDG_CACHE_HOME"):
        user_directory("work", OPTION)


def link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(mode=0o700)
    (path.parent / "elsewhere" / MARKER).write_text("varvite")
    path.symlink_to(path.parent / "elsewhere")


def open_to_others(path: Path) -> None:
    given_directory(path.parent, "work", OPTION).chmod(0o755)


def without_marker(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "thesis.txt").touch()


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (link, "is a link or a file"),
        (Path.touch, "is a link or a file"),
        (open_to_others, "others can enter"),
        (without_marker, "was not made by varvite"),
    ],
)
def test_a_directory_that_somebody_else_prepared_is_refused(tmp_path: Path, prepare: object, problem: str) -> None:
    assert callable(prepare)
    prepare(tmp_path / NAME)
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        given_directory(tmp_path, "work", OPTION)
    assert OPTION in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Another user made the materializer's directory first: he read the state, and put forged state in its place."""
    directory = given_directory(tmp_path, "work", OPTION)
    os.chown(directory, 65_534, 65_534)
    with pytest.raises(InvalidRequestError, match="belongs to another user"):
        given_directory(tmp_path, "work", OPTION)
    home = tmp_path / "home"
    make_private(home)
    make_private(home)
    os.chown(home, 65_534, 65_534)
    with pytest.raises(InvalidRequestError, match="belongs to another user"):
        make_private(home)


def test_processes_that_begin_together_have_the_same_directory(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(lambda _: given_directory(tmp_path, "work", OPTION), range(64)))
    assert made == {tmp_path / NAME}
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_place_that_cannot_be_used_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match=r"correct some\.option"):
        given_directory(tmp_path / "file", "work", OPTION)


FORKING = """
import os, sys
from varvite.storage.private_directories import TemporaryDirectory
kept = TemporaryDirectory("kept", sys.argv[1])
with TemporaryDirectory("used", sys.argv[1]) as used:
    child = os.fork()
    if not child:
        sys.exit()  # removes what a process removes at its end, and leaves the block
    os.waitpid(child, 0)
    print(kept.path.is_dir(), used.is_dir())
print(kept.path.is_dir(), used.is_dir())
"""


def test_a_forked_process_removes_nothing_of_its_parents(tmp_path: Path) -> None:
    """`os.fork()` and `sys.exit()` in a driver removed the job's temporary storage and the inbox."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.split() == ["True", "True", "True", "False"]
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_goes_with_its_last_reference(tmp_path: Path) -> None:
    directory = TemporaryDirectory("work", tmp_path)
    path = directory.path
    assert (mode(path), path.parent) == (0o700, tmp_path)
    del directory
    assert not path.exists()
