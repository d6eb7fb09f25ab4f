"""The SST files of a store that are worth rewriting, decided by their overlaps; pure.

A *cluster* is a set of flushed files whose keys overlap, directly or through others, with the files of the lowest level
that these overlap: RocksDB rewrites them together. Files that never span two parts of the key groups
(`varvite.changelog.restore.part_replay`) make one cluster per part. Rewriting some of them leaves the others' files as
they are: they are not uploaded again, and not stored twice until the snapshot before can go. RocksDB would do the same
by itself, but only by the sizes of its levels, and at any time.

RocksDB cuts its files by size. So a base that was rewritten as a whole comes apart again if it is in many files: two
clusters may share a file of the lowest level that spans both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVEL0_FILES_MAX: Final = 48
"""Most flushed files of a snapshot."""
DEPTH_MAX: Final = 10
"""Most of them that overlap: a read may have to search each, its Bloom filter first."""
DEAD_PART_MAX: Final = 0.5
"""Part of the allowed dead bytes that is left where many clusters take turns."""
DEAD_PART_USUAL: Final = 0.05
"""The same part as long as little has to be rewritten at once for it."""
REWRITTEN_PART_USUAL: Final = 0.1
"""Part of all bytes that is little to rewrite at once: it is stored twice until the snapshot before can go."""
LINK: Final = 0.25
"""Two clusters that share this part of the smaller one, in files of the lowest level, are one."""
DEEP_PART_MIN: Final = 0.03
"""A cluster of `DEPTH_MAX` files above each other, and less in them, is not rewritten for their number."""
TINY_BYTES: Final = 8 << 10
"""Smaller clusters, such as the store's record of itself, are rewritten whenever there is more than one file."""
DEPTH_FILE_BYTES_MIN: Final = 2 << 10
"""Smaller files do not count for the depth: that record, of which each fold flushes two, may lie on files with rows."""


class SstFile(NamedTuple):
    """A file of the database."""

    name: str
    level: int
    """0: a flushed file, above the other levels."""
    first: bytes
    """Lowest key."""
    last: bytes
    """Highest key, inclusive."""
    size_bytes: int


@dataclass(frozen=True)
class Cluster:
    """Files that are rewritten together."""

    files: tuple[SstFile, ...]
    """At least one."""

    @cached_property
    def first(self) -> bytes:
        """Lowest key of the files above the lowest level; that level's files may begin before."""
        return min(file.first for file in self._above)

    @cached_property
    def last(self) -> bytes:
        """Highest key of the same, inclusive."""
        return max(file.last for file in self._above)

    @cached_property
    def _lowest(self) -> int:
        return max(file.level for file in self.files)

    @property
    def _above(self) -> Sequence[SstFile]:
        return [file for file in self.files if file.level < self._lowest] or self.files

    @cached_property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def level0_files(self) -> int:
        """Number of flushed files."""
        return sum(1 for file in self.files if file.level == 0)

    @cached_property
    def depth(self) -> int:
        """Most flushed files that overlap: fewer than all if a file of a lower level holds the cluster together."""
        flushed = [file for file in self.files if file.level == 0 and file.size_bytes >= DEPTH_FILE_BYTES_MIN]
        ends = sorted([(file.first, 0) for file in flushed] + [(file.last, 1) for file in flushed])
        return max(accumulate(-1 if is_last else 1 for _, is_last in ends), default=0)

    @cached_property
    def dead_bytes(self) -> int:
        """An estimate like RocksDB's: files above the lowest level have replaced their own size of that level."""
        if self._lowest == 0:
            return self.size_bytes - max(file.size_bytes for file in self.files)
        return sum(file.size_bytes for file in self.files if file.level < self._lowest)

    @property
    def is_free(self) -> bool:
        """Is a rewrite free? A single flushed file is moved to the lowest level as it is, and keeps its name."""
        return self.level0_files == 1 == len(self.files) or (self.size_bytes < TINY_BYTES and len(self.files) > 1)


def clusters_of(files: Iterable[SstFile]) -> tuple[Cluster, ...]:
    """The clusters, in order of key; a file of the lowest level that overlaps no other is a cluster."""
    by_key = sorted(files, key=lambda file: file.first)
    lowest = max((file.level for file in by_key if file.level), default=1)
    below = [file for file in by_key if file.level == lowest]
    clusters: list[Cluster] = []
    for above in _overlapping(file for file in by_key if file.level < lowest):
        first, last = above[0].first, max(file.last for file in above)
        cluster = Cluster((*above, *(file for file in below if file.first <= last and first <= file.last)))
        if clusters and _shared_bytes(clusters[-1], cluster) > LINK * min(clusters[-1].size_bytes, cluster.size_bytes):
            cluster = Cluster(tuple(dict.fromkeys((*clusters.pop().files, *cluster.files))))
        clusters.append(cluster)
    covered = {file for cluster in clusters for file in cluster.files}
    clusters += [Cluster((file,)) for file in below if file not in covered]
    return tuple(sorted(clusters, key=lambda cluster: cluster.first))


def _overlapping(by_key: Iterable[SstFile]) -> list[list[SstFile]]:
    """Files that overlap, directly or through others."""
    runs: list[list[SstFile]] = []
    last = b""
    for file in by_key:
        if runs and file.first <= last:
            runs[-1].append(file)
        else:
            runs.append([file])
        last = max(last, file.last)
    return runs


def _shared_bytes(a: Cluster, b: Cluster) -> int:
    return sum(file.size_bytes for file in {*a.files} & {*b.files})


class Rewrite(NamedTuple):
    """The choice of `plan_rewrite`."""

    clusters: tuple[Cluster, ...]
    only_flushed: bool
    """Flushed files are too many, but have too few bytes for a rewrite of everything below them: RocksDB compacts them
    into the next level."""


def plan_rewrite(clusters: Sequence[Cluster], ratio: float, size_bytes_min: int, level_size_bytes: int) -> Rewrite:
    """Choose the clusters to rewrite, so that stored bytes stay below `ratio` times the live bytes.

    A single cluster goes from no dead bytes to `ratio - 1` of the live ones and back. Many take turns, the one with the
    largest dead part first: half of these dead bytes in all of them then means all of them in the one whose turn it is.

    Args:
        clusters: Of all files.
        ratio: Bytes of files per byte of live data. At most 1 rewrites all.
        size_bytes_min: Smaller databases are only rewritten for the number of their files.
        level_size_bytes: Larger databases have levels between the flushed files and the lowest level.
    """
    size_bytes = sum(file.size_bytes for file in {file for cluster in clusters for file in cluster.files})
    dead_bytes = sum(cluster.dead_bytes for cluster in clusters)
    chosen: list[Cluster] = []
    if size_bytes and size_bytes >= size_bytes_min:
        # The effective number: clusters of equal size count fully, one that has nearly everything counts as one.
        count = max(1.0, size_bytes**2 / sum(cluster.size_bytes**2 for cluster in clusters))
        allowed_bytes, rewritten_bytes = (ratio - 1) * (size_bytes - dead_bytes), 0
        for cluster in sorted(clusters, key=_dead_part, reverse=True):
            part = DEAD_PART_USUAL if rewritten_bytes < REWRITTEN_PART_USUAL * size_bytes else DEAD_PART_MAX
            if dead_bytes < allowed_bytes * (part + (1 - part) / count):
                break
            chosen.append(cluster)
            dead_bytes -= cluster.dead_bytes
            rewritten_bytes += cluster.size_bytes
    rest = [cluster for cluster in clusters if cluster not in chosen and not cluster.is_free]
    deep = [cluster for cluster in rest if cluster.depth > DEPTH_MAX]
    turn = deep or (_deepest_of_many(rest) if all(cluster.is_free for cluster in chosen) else [])
    if size_bytes > level_size_bytes and all(_has_little_dead(cluster) for cluster in turn):
        if deep:
            return Rewrite(tuple(chosen), only_flushed=True)
        turn = []
    return Rewrite((*chosen, *turn, *_of_many([c for c in rest if c not in turn])), only_flushed=False)


def _deepest_of_many(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The deepest cluster, if each fold must rewrite one from now on, lest several are too deep at once."""
    by_depth = sorted((c for c in clusters if c.depth), key=lambda cluster: cluster.depth, reverse=True)
    is_time = any(cluster.depth + folds > DEPTH_MAX for folds, cluster in enumerate(by_depth))
    return by_depth[:1] if is_time else []


def _has_little_dead(cluster: Cluster) -> bool:
    return _dead_part(cluster) < DEEP_PART_MIN * cluster.depth / DEPTH_MAX


def _of_many(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Clusters, none of them free, whose rewrite leaves at most `LEVEL0_FILES_MAX` flushed files."""
    chosen: list[Cluster] = []
    rest = [cluster for cluster in clusters if cluster.level0_files]
    excess = sum(cluster.level0_files for cluster in rest) - LEVEL0_FILES_MAX
    for cluster in sorted(rest, key=lambda cluster: cluster.size_bytes / cluster.level0_files):
        if excess <= 0:
            break
        chosen.append(cluster)
        excess -= cluster.level0_files
    return chosen


def _dead_part(cluster: Cluster) -> float:
    return cluster.dead_bytes / cluster.size_bytes if cluster.size_bytes else 0.0
