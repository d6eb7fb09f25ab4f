"""Which SST files of a store are worth rewriting, decided by what overlaps what; pure.

A *cluster* is a set of flushed files whose keys overlap, directly or through others, and what these overlap of the
lowest level: RocksDB rewrites them together. Files that never span two parts of the key groups
(`varvite.changelog.restore.part_replay`) make one cluster per part. Rewriting some of them leaves the others' files as
they are: they are not uploaded again, and not stored twice until the snapshot before can go. RocksDB would do the same
by itself, but only with what its levels tell it, and whenever it likes.

RocksDB cuts what it writes by size. So a base that was rewritten as a whole comes apart again if it is in many files:
two clusters may have a file of the lowest level in common that spans both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVEL0_FILES_MAX: Final = 48
"""So many flushed files a snapshot has at most."""
DEPTH_MAX: Final = 10
"""So many of them overlap at most: a read may have to look into each, by its Bloom filter first."""
DEAD_MOST: Final = 0.5
"""Of the dead bytes that the ratio allows: so many are left where many clusters take turns."""
DEAD_USUAL: Final = 0.05
"""The same as long as little has to be rewritten at once for it."""
REWRITTEN_USUAL: Final = 0.1
"""This part of the bytes is little: it is stored twice until the snapshot before can go."""
LINK: Final = 0.25
"""Two clusters that have so much of the smaller one in common, files of the lowest level, are one."""
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
    """0: as it was flushed, above what other levels have."""
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
        """Lowest key of what lies above the lowest level; that level's files may begin before."""
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
        """How many are as they were flushed."""
        return sum(1 for file in self.files if file.level == 0)

    @cached_property
    def depth(self) -> int:
        """How many of those overlap at most: fewer than there are, if a file of a lower level holds them together."""
        flushed = [file for file in self.files if file.level == 0 and file.size_bytes >= DEPTH_FILE_BYTES_MIN]
        ends = sorted([(file.first, 0) for file in flushed] + [(file.last, 1) for file in flushed])
        return max(accumulate(-1 if is_last else 1 for _, is_last in ends), default=0)

    @cached_property
    def dead_bytes(self) -> int:
        """An estimate like RocksDB's: what lies above the lowest level has replaced as much of that level."""
        if self._lowest == 0:
            return self.size_bytes - max(file.size_bytes for file in self.files)
        return sum(file.size_bytes for file in self.files if file.level < self._lowest)

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing: a single flushed file is moved to the lowest level as it is, and keeps its name."""
        return self.level0_files == 1 == len(self.files) or (self.size_bytes < TINY_BYTES and len(self.files) > 1)


def clusters_of(files: Iterable[SstFile]) -> tuple[Cluster, ...]:
    """The clusters, in order of key; one that has only files of the lowest level has one of them."""
    by_key = sorted(files, key=lambda file: file.first)
    lowest = max((file.level for file in by_key if file.level), default=1)
    below = [file for file in by_key if file.level == lowest]
    found: list[Cluster] = []
    for above in _overlapping(file for file in by_key if file.level < lowest):
        first, last = above[0].first, max(file.last for file in above)
        cluster = Cluster((*above, *(file for file in below if file.first <= last and first <= file.last)))
        if found and _shared_bytes(found[-1], cluster) > LINK * min(found[-1].size_bytes, cluster.size_bytes):
            cluster = Cluster(tuple(dict.fromkeys((*found.pop().files, *cluster.files))))
        found.append(cluster)
    covered = {file for cluster in found for file in cluster.files}
    found += [Cluster((file,)) for file in below if file not in covered]
    return tuple(sorted(found, key=lambda cluster: cluster.first))


def _overlapping(by_key: Iterable[SstFile]) -> list[list[SstFile]]:
    """Files that overlap, directly or through others."""
    found: list[list[SstFile]] = []
    last = b""
    for file in by_key:
        if found and file.first <= last:
            found[-1].append(file)
        else:
            found.append([file])
        last = max(last, file.last)
    return found


def _shared_bytes(one: Cluster, other: Cluster) -> int:
    return sum(file.size_bytes for file in {*one.files} & {*other.files})


class Rewrite(NamedTuple):
    """What is to be rewritten now."""

    clusters: tuple[Cluster, ...]
    only_flushed: bool
    """Flushed files are too many, but of too few bytes to rewrite all that lies below them: RocksDB compacts them into
    the level that follows."""


def plan_rewrite(clusters: Sequence[Cluster], ratio: float, size_bytes_min: int, level_size_bytes: int) -> Rewrite:
    """What to rewrite, so that what is stored stays below `ratio` of what is live.

    One cluster by itself goes from no dead bytes to `ratio - 1` of the live ones and back. Many take turns, those first
    of which most is dead: half as much in all of them then means as much in the one whose turn it is.

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
        # Clusters of about equal size count as what they are, one that has nearly everything as one.
        count = max(1.0, size_bytes**2 / sum(cluster.size_bytes**2 for cluster in clusters))
        allowed_bytes, rewritten_bytes = (ratio - 1) * (size_bytes - dead_bytes), 0
        for cluster in sorted(clusters, key=_dead_part, reverse=True):
            part = DEAD_USUAL if rewritten_bytes < REWRITTEN_USUAL * size_bytes else DEAD_MOST
            if dead_bytes < allowed_bytes * (part + (1 - part) / count):
                break
            chosen.append(cluster)
            dead_bytes -= cluster.dead_bytes
            rewritten_bytes += cluster.size_bytes
    rest = [cluster for cluster in clusters if cluster not in chosen and not cluster.is_free]
    deep = [cluster for cluster in rest if cluster.depth > DEPTH_MAX]
    turn = deep or (_deepest_of_many(rest) if all(cluster.is_free for cluster in chosen) else [])
    if size_bytes > level_size_bytes and all(_is_of_little(cluster) for cluster in turn):
        if deep:
            return Rewrite(tuple(chosen), only_flushed=True)
        turn = []
    return Rewrite((*chosen, *turn, *_of_many([c for c in rest if c not in turn])), only_flushed=False)


def _deepest_of_many(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The deepest cluster, if one with each fold must be rewritten from now on, lest several are too deep at once."""
    by_depth = sorted((c for c in clusters if c.depth), key=lambda cluster: cluster.depth, reverse=True)
    is_time = any(cluster.depth + folds > DEPTH_MAX for folds, cluster in enumerate(by_depth))
    return by_depth[:1] if is_time else []


def _is_of_little(cluster: Cluster) -> bool:
    return _dead_part(cluster) < DEEP_PART_MIN * cluster.depth / DEPTH_MAX


def _of_many(clusters: Sequence[Cluster]) -> list[Cluster]:
    """So many of these, of which none is free, that not too many flushed files are left."""
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
