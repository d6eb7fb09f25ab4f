"""Choice of the files of a store that are rewritten together."""

from __future__ import annotations

import random

import pytest

from varvite.changelog.working_stores.rocksdb.overlap import (
    DEPTH_FILE_BYTES_MIN,
    DEPTH_MAX,
    LEVEL0_FILES_MAX,
    REWRITTEN_PART_USUAL,
    TINY_BYTES,
    Cluster,
    Rewrite,
    SstFile,
    clusters_of,
    plan_rewrite,
)

LOWEST = 6
RATIO = 1.35


def file(first: int, last: int, size_bytes: int = 1_000_000, level: int = LOWEST) -> SstFile:
    return SstFile(f"{first}-{last}-{level}-{size_bytes}", level, bytes([first]), bytes([last]), size_bytes)


def spans(clusters: tuple[Cluster, ...]) -> list[tuple[int, int, int]]:
    return [(cluster.first[0], cluster.last[0], len(cluster.files)) for cluster in clusters]


def parted(count: int, dead: float, files: int = 1) -> list[SstFile]:
    """`count` parts, each of a megabyte, on which lies so much that was flushed."""
    size_bytes = int(1_000_000 * dead / files)
    flushed = [file(2 * i, 2 * i + 1, size_bytes, 0) for i in range(count) for _ in range(files if dead else 0)]
    return [*flushed, *(file(2 * i, 2 * i + 1) for i in range(count))]


def planned(files: list[SstFile], ratio: float = RATIO, size_bytes_min: int = 0, level_size_bytes: int = 0) -> Rewrite:
    return plan_rewrite(clusters_of(files), ratio, size_bytes_min, level_size_bytes)


def rewritten(files: list[SstFile], ratio: float = RATIO, size_bytes_min: int = 0) -> tuple[Cluster, ...]:
    return planned(files, ratio, size_bytes_min).clusters


def test_files_that_overlap_directly_or_through_others_are_one_cluster() -> None:
    files = [file(10, 12), file(1, 3), file(3, 5, level=0), file(5, 6), file(7, 9), file(12, 12, level=0)]
    assert spans(clusters_of(files)) == [(3, 5, 3), (7, 9, 1), (12, 12, 2)], "spans are those of what was flushed"


def test_a_long_file_joins_all_that_it_covers() -> None:
    assert spans(clusters_of([file(2, 3), file(0, 9, level=0), file(4, 5)])) == [(0, 9, 3)]


def test_no_files_are_no_clusters() -> None:
    assert clusters_of([]) == rewritten([]) == ()


def test_what_lies_above_the_lowest_level_has_replaced_as_much_of_it() -> None:
    [cluster] = clusters_of([file(0, 9), file(0, 4, 200, 0), file(3, 9, 100, 0)])
    assert (cluster.dead_bytes, cluster.level0_files, cluster.size_bytes) == (300, 2, 1_000_300)


def test_of_flushed_files_only_the_largest_is_live() -> None:
    [cluster] = clusters_of([file(0, 4, 500, 0), file(3, 9, 100, 0)])
    assert cluster.dead_bytes == 100


def test_one_cluster_is_rewritten_when_the_ratio_is_reached() -> None:
    assert not rewritten(parted(1, 0.34))
    assert spans(rewritten(parted(1, 0.36))) == [(0, 1, 2)]


def test_many_clusters_are_rewritten_some_at_a_time() -> None:
    assert not rewritten(parted(8, 0.05))
    chosen = rewritten(parted(8, 0.15))
    assert 8 * REWRITTEN_PART_USUAL <= len(chosen) == 1


def test_the_ratio_is_kept_even_if_much_must_be_rewritten() -> None:
    files = parted(8, 0.5)
    chosen = rewritten(files)
    left = [f for cluster in clusters_of(files) if cluster not in chosen for f in cluster.files]
    dead = sum(f.size_bytes for f in left if f.level == 0)
    assert len(chosen) < 8
    assert dead < (RATIO - 1) * 8_000_000


def test_clusters_of_which_most_is_dead_come_first() -> None:
    files = [*parted(8, 0.1), file(4, 5, 300_000, 0)]
    assert spans(rewritten(files))[0] == (4, 5, 3)


def test_small_databases_are_left_alone() -> None:
    assert rewritten(parted(8, 0.5))
    assert not rewritten(parted(8, 0.5), size_bytes_min=100_000_000)


def test_a_cluster_that_too_many_flushed_files_overlap_is_rewritten_whatever_its_size() -> None:
    deep = [file(0, 1, 20_000, 0) for _ in range(DEPTH_MAX + 1)]
    assert not rewritten([file(0, 1), *deep[1:]])
    assert spans(rewritten([file(0, 1), *deep], size_bytes_min=1 << 40)) == [(0, 1, DEPTH_MAX + 2)]


def test_all_that_lies_below_is_not_rewritten_for_a_few_bytes_in_many_files() -> None:
    deep = [file(0, 9, DEPTH_FILE_BYTES_MIN, 0) for _ in range(DEPTH_MAX + 1)]
    assert planned([file(0, 9), *deep]) == ((), True)
    assert planned([file(0, 9), *deep[1:]]) == ((), False)


def test_the_record_of_the_version_makes_no_cluster_deep() -> None:
    """Each fold flushed two, so that a base in one file was rewritten as a whole at every fourth fold."""
    tiny = [file(9, 9, DEPTH_FILE_BYTES_MIN - 1, 0) for _ in range(DEPTH_MAX + 1)]
    assert planned([file(0, 9), *tiny], level_size_bytes=1 << 30) == ((), False)


def test_a_small_database_has_no_level_into_which_those_files_could_go() -> None:
    """RocksDB would rewrite all of it, where one cluster is enough."""
    files = [*parted(3, 0), *(file(0, 1, DEPTH_FILE_BYTES_MIN, 0) for _ in range(DEPTH_MAX + 1))]
    plan = planned(files, level_size_bytes=1 << 30)
    assert (spans(plan.clusters), plan.only_flushed) == ([(0, 1, DEPTH_MAX + 2)], False)


def test_clusters_that_grow_deep_together_are_rewritten_one_after_another() -> None:
    depths = [0] * 8
    most: list[int] = []
    for _ in range(60):
        depths = [depth + 1 for depth in depths]
        files = [file(2 * i, 2 * i + 1) for i in range(8)]
        files += [file(2 * i, 2 * i + 1, DEPTH_FILE_BYTES_MIN, 0) for i in range(8) for _ in range(depths[i])]
        chosen = planned(files, level_size_bytes=1 << 30).clusters
        for cluster in chosen:
            depths[cluster.first[0] // 2] = 0
        most.append(len(chosen))
        assert max(depths) <= DEPTH_MAX
    assert max(most) == 1
    assert sum(most) > 20


def test_a_large_database_does_not_rewrite_parts_for_little_by_turns() -> None:
    files = [
        *parted(8, 0),
        *(file(2 * i, 2 * i + 1, DEPTH_FILE_BYTES_MIN, 0) for i in range(8) for _ in range(DEPTH_MAX // 2)),
    ]
    assert planned(files) == ((), False)
    assert len(planned(files, level_size_bytes=1 << 30).clusters) == 1


def test_flushed_files_are_never_too_many_together() -> None:
    files = parted(16, 0.001, files=6)
    chosen = rewritten(files, size_bytes_min=1 << 40)
    left = sum(c.level0_files for c in clusters_of(files) if c not in chosen)
    assert LEVEL0_FILES_MAX - 6 < left <= LEVEL0_FILES_MAX


def test_flushed_files_that_overlap_nothing_cost_nothing_and_do_not_count() -> None:
    files = [file(i, i, 2 * TINY_BYTES, 0) for i in range(LEVEL0_FILES_MAX + 5)]
    assert all(cluster.is_free for cluster in clusters_of(files))
    assert not rewritten(files)


@pytest.mark.parametrize(("size_bytes", "is_free"), [(TINY_BYTES // 2 - 1, True), (TINY_BYTES // 2, False)])
def test_the_metadata_is_rewritten_as_soon_as_it_is_more_than_one_file(size_bytes: int, *, is_free: bool) -> None:
    [cluster] = clusters_of([file(0, 0, size_bytes), file(0, 0, size_bytes, 0)])
    assert cluster.is_free == is_free


def test_a_ratio_of_one_rewrites_all() -> None:
    assert len(rewritten(parted(3, 0), ratio=1.0)) == 3


def test_fold_after_fold_what_is_dead_and_what_is_rewritten_stay_small() -> None:
    """Each fold flushes 5 % into each of eight parts; what was rewritten is one file again."""
    rng = random.Random(7)
    flushed = [0] * 8
    shares: list[float] = []
    for fold in range(200):
        flushed = [count + 1 for count in flushed]
        files = [file(2 * i, 2 * i + 1) for i in range(8)]
        files += [file(2 * i, 2 * i + 1, rng.randint(45_000, 55_000), 0) for i in range(8) for _ in range(flushed[i])]
        chosen = rewritten(files)
        for cluster in chosen:
            flushed[cluster.first[0] // 2] = 0
        if fold > 30:
            shares.append(len(chosen) / 8)
            assert sum(flushed) * 50_000 < (RATIO - 1) / 2 * 8_000_000
            assert max(flushed) <= DEPTH_MAX
            assert sum(flushed) <= LEVEL0_FILES_MAX
    assert max(shares) <= 0.25
