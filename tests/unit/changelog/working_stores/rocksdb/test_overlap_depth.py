"""A base whose files span the parts of the key groups, as one that was folded in one part, clipped, or made before."""

from __future__ import annotations

from varvite.changelog.working_stores.rocksdb.overlap import (
    DEPTH_MAX,
    LEVEL0_FILES_MAX,
    SstFile,
    clusters_of,
    plan_rewrite,
)

PARTS = 8
BASE = SstFile("base", 6, b"\x00\x00", b"\xff\xff", 100 << 20)


def flushed(fold: int) -> list[SstFile]:
    """A fold of a hundredth of the base, a file for each part."""
    return [SstFile(f"{fold}-{part}", 0, bytes((part, 0)), bytes((part, 255)), 128 << 10) for part in range(PARTS)]


def test_many_files_beside_each_other_are_no_reason_to_rewrite_a_base_that_holds_them_together() -> None:
    """A read looks into one file of each fold; the base was rewritten as a whole at every second fold."""
    files = [BASE, *(file for fold in range(LEVEL0_FILES_MAX // PARTS) for file in flushed(fold))]
    [cluster] = clusters_of(files)
    assert cluster.level0_files > DEPTH_MAX > cluster.depth
    assert plan_rewrite([cluster], 1.35, 0, 0) == ((), False)


def test_files_above_each_other_are_a_reason() -> None:
    deep = [SstFile(f"{fold}", 0, b"\x02\x00", b"\x02\x09", 2 << 10) for fold in range(DEPTH_MAX + 1)]
    assert plan_rewrite(clusters_of([BASE, *deep[1:]]), 1.35, 0, 0) == ((), False)
    assert plan_rewrite(clusters_of([BASE, *deep]), 1.35, 0, 0) != ((), False)


def cut_base(count: int) -> list[SstFile]:
    """The base as RocksDB cuts it: by size, not by part, so that files span two parts."""
    edges = [(PARTS << 8) * i // count for i in range(count)]
    return [
        SstFile(f"base-{i}", 6, edge.to_bytes(2, "big"), (edge + (PARTS << 8) // count - 1).to_bytes(2, "big"), 1 << 20)
        for i, edge in enumerate(edges)
    ]


def test_a_base_in_many_files_comes_apart_again_though_some_of_them_span_two_parts() -> None:
    base = cut_base(60)
    clusters = [cluster for cluster in clusters_of([*base, *flushed(1), *flushed(2)]) if cluster.level0_files]
    assert [cluster.level0_files for cluster in clusters] == [2] * PARTS
    assert {file for cluster in clusters for file in cluster.files} >= {*flushed(1), *flushed(2)}
    for cluster in clusters:
        assert (cluster.first[1:], cluster.last[1:]) == (b"\x00", b"\xff"), "the flushed files of no other part"
        assert all(file.level == 0 or file.last >= cluster.first for file in cluster.files)
        assert all(file.level == 0 or file.first <= cluster.last for file in cluster.files)


def test_a_base_in_few_files_holds_together_what_lies_above_it() -> None:
    assert len([cluster for cluster in clusters_of([BASE, *flushed(1)]) if cluster.level0_files]) == 1
    assert len([cluster for cluster in clusters_of([*cut_base(3), *flushed(1)]) if cluster.level0_files]) == 1


def test_each_file_is_in_a_cluster() -> None:
    files = [*cut_base(60), *flushed(1), SstFile("between", 5, b"\x01\x05", b"\x03\x05", 9)]
    assert {file for cluster in clusters_of(files) for file in cluster.files} == {*files}
    assert clusters_of([]) == ()
