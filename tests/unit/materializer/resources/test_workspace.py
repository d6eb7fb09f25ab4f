"""The local directory: scratch space per range, and the limit of the local copies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from varvite.materializer.ranges import RangeKey
from varvite.materializer.resources.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = [RangeKey("id", "op/x", low, low + 1) for low in range(4)]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as workspace:
        for age, key in enumerate(KEYS):
            directory = workspace.range_directory(key)
            directory.mkdir()
            (directory / "1.sst").write_bytes(b"x" * 1_000)
            os.utime(directory / "1.sst", (1_000 + age, 1_000 + age))
        yield workspace


def left(workspace: Workspace) -> list[RangeKey]:
    return [key for key in KEYS if workspace.range_directory(key).exists()]


@pytest.mark.parametrize(("limit_bytes", "kept"), [(4_000, KEYS), (3_999, KEYS[1:]), (1_000, KEYS[3:]), (0, [])])
def test_the_copies_that_were_longest_not_used_go_first(
    workspace: Workspace, limit_bytes: int, kept: list[RangeKey]
) -> None:
    removed = workspace.trim(limit_bytes, ())
    assert left(workspace) == kept
    assert len(removed) == len(KEYS) - len(kept)


def test_copies_in_use_stay_whatever_the_limit(workspace: Workspace) -> None:
    workspace.trim(0, KEYS[:1])
    assert left(workspace) == KEYS[:1]


def test_ranges_do_not_share_scratch_space(workspace: Workspace) -> None:
    first, second = workspace.scratch("restore", KEYS[0]), workspace.scratch("restore", KEYS[1])
    assert first != second
    for directory in (first, second):
        assert directory.parent.is_dir()
        directory.mkdir()
    (second / "file").touch()
    assert not workspace.scratch("restore", KEYS[0]).exists()
    assert (second / "file").exists()
