"""The ranges of a job that are materialized, each with its state on the chain; pure.

A snapshot may replace whole tiles only (docs/internals/commit-protocol.md#adopt). So the unit is a tile. A tile that
several partitions of the current parallelism cover exactly is split into them, and is replaced once all of them are
published: the empty tile of a new operator, or one from before the parallelism grew. Ranges that fit no tile wait for
the tile that they lie in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.materializer.fold.log_index import LogIndex
from varvite.materializer.fold.publication import RangeView
from varvite.materializer.ranges import LogLength, RangeKey
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from varvite.materializer.fold.chain_view import ChainView
    from varvite.storage.format.records import Commit, Tile


@dataclass(frozen=True)
class RangeWork:
    """A range, its log and its base."""

    key: RangeKey
    key_type: str
    """Type string of the operator's keys."""
    view: RangeView
    log: LogLength
    """The range's own log after the tile, up to the target."""
    newest_log: LogLength
    """The same up to the newest commit: the log that a restore replays."""
    newest_bytes: int
    """Bytes of it that the newest commit added."""
    base_bytes: int | None
    """Stored bytes of the tile; None: not known."""
    share: float
    """The range's part of the operator's key groups, above 0."""


def plan_ranges(job_id: str, chain: ChainView, base_sizes: Mapping[Tile, int]) -> tuple[RangeWork, ...]:
    """The ranges of every operator of the newest commit, in order of operator and key group.

    `base_sizes`: stored bytes of its tiles; those that are not known are left out.
    """
    floors = {(f.operator, f.low, f.high): f.number for f in chain.head.floors}
    operators = {operator.uid: operator for operator in chain.newest.commit.operators}
    partitions = _partitions(chain.newest.commit)
    target = chain.final.commit.link if chain.final else ORIGIN
    line = frozenset(chain.newest.view.line)
    final_log = LogIndex(chain.final.view if chain.final else None)
    newest_log = LogIndex(chain.newest.view)
    works: list[RangeWork] = []
    for tile in chain.newest.view.tiles:
        operator = operators[tile.operator]
        tile_log = final_log.after(tile.operator, tile.low, tile.high, tile.at.seq)
        for low, high in split(tile, partitions.get(tile.operator, ())):
            view = RangeView(
                tile=tile,
                floor=floors.get((tile.operator, low, high), 0),
                target=target,
                line=line,
                tile_log=tile_log,
                changelog=operator.changelog,
            )
            works.append(
                RangeWork(
                    RangeKey(job_id, tile.operator, low, high),
                    operator.key_type,
                    view,
                    log=final_log.after(tile.operator, low, high, tile.at.seq),
                    newest_log=newest_log.after(tile.operator, low, high, tile.at.seq),
                    newest_bytes=newest_log.after(tile.operator, low, high, chain.newest.commit.seq - 1).size_bytes,
                    base_bytes=base_sizes.get(tile),
                    share=(high - low) / chain.newest.commit.max_parallelism,
                )
            )
    return tuple(works)


def split(tile: Tile, partitions: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The partitions that cover the tile exactly, or the tile's own range if they do not."""
    inside = sorted((low, high) for low, high in partitions if tile.low <= low < high <= tile.high)
    position = tile.low
    for low, high in inside:
        if low != position:
            break
        position = high
    return tuple(inside) if position == tile.high else ((tile.low, tile.high),)


def _partitions(commit: Commit) -> dict[str, set[tuple[int, int]]]:
    partitions: dict[str, set[tuple[int, int]]] = {}
    for operator, low, high in _part_ranges(commit):
        partitions.setdefault(operator, set()).add((low, high))
    return partitions


def _part_ranges(commit: Commit) -> Iterator[tuple[str, int, int]]:
    return ((part.operator, part.low, part.high) for part in commit.parts if part.low < part.high)
