"""The non-keyed state of a partition at the start of a job, perhaps with another parallelism; pure.

| state | same parallelism | another parallelism |
|---|---|---|
| list, raw operator | the partition's | the elements of all, in order, in equal shares |
| union list | the elements of all, in order | likewise |
| broadcast | the partition's | that of one old partition, each in turn: all had the same |
| raw keyed | the streams of the partition's key groups | likewise |

Every partition decides for itself, from the same images: together they get every element once (I5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.operator_state.section import BROADCAST, RAW_KEYED, UNION_LIST, StateSection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Place(NamedTuple):
    """A partition, and the number of partitions."""

    partition: int
    parallelism: int
    low: int
    """Its first key group, inclusive."""
    high: int
    """Its last key group, exclusive."""


def redistributed(
    images: Mapping[int, Sequence[StateSection]], parallelism_before: int, place: Place
) -> tuple[StateSection, ...]:
    """The first state of a partition.

    Args:
        images: Old partition → its sections; old partitions without state may be left out.
        parallelism_before: The number of old partitions.
        place: The new partition.
    """
    stays = place.parallelism == parallelism_before
    sections: list[StateSection] = []
    for (_, kind), by_partition in _by_state(images):
        if kind == BROADCAST:
            sections += _copy(by_partition, place, stays=stays)
        elif kind == RAW_KEYED:
            sections += _of_key_groups(_all(by_partition), place)
        elif kind == UNION_LIST:
            sections += _joined(_all(by_partition))
        else:
            sections += by_partition.get(place.partition, []) if stays else _share(_all(by_partition), place)
    return tuple(sections)


def union_shares(
    images: Mapping[int, Sequence[StateSection]], parallelism_before: int, place: Place
) -> dict[str, list[StateSection]]:
    """Name of each union list → the sections that the partition keeps of it if the function does not declare it.

    Those of a list: else every start of the job would multiply the elements. Arguments as of `redistributed`.
    """
    stays = place.parallelism == parallelism_before
    return {
        name: by_partition.get(place.partition, []) if stays else _share(_all(by_partition), place)
        for (name, kind), by_partition in _by_state(images)
        if kind == UNION_LIST
    }


def _by_state(
    images: Mapping[int, Sequence[StateSection]],
) -> list[tuple[tuple[str, str], dict[int, list[StateSection]]]]:
    """Name and kind of each state, in order, and its sections by partition, ascending."""
    by_state: dict[tuple[str, str], dict[int, list[StateSection]]] = {}
    for partition in sorted(images):
        for section in images[partition]:
            by_state.setdefault((section.name, section.kind), {}).setdefault(partition, []).append(section)
    return sorted(by_state.items(), key=lambda item: item[0])


def _all(by_partition: Mapping[int, list[StateSection]]) -> list[StateSection]:
    return [section for sections in by_partition.values() for section in sections]


def _copy(by_partition: Mapping[int, list[StateSection]], place: Place, *, stays: bool) -> list[StateSection]:
    if stays and place.partition in by_partition:
        return by_partition[place.partition]
    holders = sorted(by_partition)
    return by_partition[holders[place.partition % len(holders)]]


def _share(sections: Sequence[StateSection], place: Place) -> list[StateSection]:
    """The rows from `total * partition / parallelism` on, as many as come before the next partition's."""
    total = sum(section.rows for section in sections)
    first = total * place.partition // place.parallelism
    end = total * (place.partition + 1) // place.parallelism
    share: list[StateSection | None] = []
    position = 0
    for section in sections:
        begin, stop = max(first - position, 0), min(end - position, section.rows)
        if begin < stop:
            share.append(section if stop - begin == section.rows else section.with_rows(section.decoded()[begin:stop]))
        position += section.rows
    return _joined(section for section in share if section is not None)


def _of_key_groups(sections: Sequence[StateSection], place: Place) -> list[StateSection]:
    rows: list[tuple[int, bytes]] = [row for section in sections for row in section.decoded()]
    kept = sorted(row for row in rows if place.low <= row[0] < place.high)
    section = sections[0].with_rows(kept)
    return [] if section is None else [section]


def _joined(sections: Iterable[StateSection]) -> list[StateSection]:
    """The same rows in fewer sections: neighbours of one type become one."""
    runs: list[list[StateSection]] = []
    for section in sections:
        if runs and runs[-1][0].value_type == section.value_type:
            runs[-1].append(section)
        else:
            runs.append([section])
    joined: list[StateSection] = []
    for run in runs:
        rows: list[Any] = [row for section in run for row in section.decoded()] if len(run) > 1 else []
        whole = run[0].with_rows(rows) if rows else run[0]
        joined += [] if whole is None else [whole]
    return joined
