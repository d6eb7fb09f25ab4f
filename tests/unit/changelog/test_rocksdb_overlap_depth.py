"""A base whose files span the parts of the key groups, as one that was folded in one part, clipped, or made before."""

from __future__ import annotations

from varve.changelog.rocksdb_overlap import DEPTH_MAX, LEVEL0_FILES_MAX, SstFile, clusters_of, clusters_to_rewrite

PARTS = 8
BASE = SstFile("base", 6, b"\x00\x00", b"\xff\xff", 100 << 20)


def flushed(fold: int) -> list[SstFile]:
    """A fold of a hundredth of the base, a file for each part."""
    return [SstFile(f"{fold}-{part}", 0, bytes((part, 0)), bytes((part, 9)), 128 << 10) for part in range(PARTS)]


def test_many_files_beside_each_other_are_no_reason_to_rewrite_a_base_that_holds_them_together() -> None:
    """A read looks into one file of each fold; the base was rewritten as a whole at every second fold."""
    files = [BASE, *(file for fold in range(LEVEL0_FILES_MAX // PARTS) for file in flushed(fold))]
    [cluster] = clusters_of(files)
    assert cluster.level0_files > DEPTH_MAX > cluster.depth
    assert not clusters_to_rewrite([cluster], 1.35, 0)


def test_files_above_each_other_are_a_reason() -> None:
    deep = [SstFile(f"{fold}", 0, b"\x02\x00", b"\x02\x09", 100) for fold in range(DEPTH_MAX + 1)]
    assert not clusters_to_rewrite(clusters_of([BASE, *deep[1:]]), 1.35, 0)
    assert clusters_to_rewrite(clusters_of([BASE, *deep]), 1.35, 0)
