"""What the standby of a host tells in the storage: of which partitions it has copies, and how far these are.

The driver prefers such hosts when a partition has lost its executor, and standbys share the partitions by it. No
correctness rests on these objects: a damaged, missing or outdated one only costs a restore (I9).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format import layout
from varvite.storage.format.frame import frame, unframe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.object_stores.contract import ObjectStore

_KIND: Final = b"STBY"
_VERSION: Final = 1


class OperatorCopies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The copies of an operator's state on one host, by partition: key groups as `key_range` says."""

    operator: str
    parallelism: int
    copies: tuple[tuple[int, int, int], ...] = ()
    """`(first, end, seq)`: the copies of partitions `[first, end)` are at the commit with this seq."""
    in_use: tuple[tuple[int, int], ...] = ()
    """`(first, end)`: processes of the host, most likely state workers, use the state of partitions `[first, end)`."""


class StandbyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One standby of a job."""

    job_id: str
    host: str
    """Its own among the standbys of the job."""
    names: tuple[str, ...]
    """What the host is called, among these what Spark calls it."""
    counter: int = 0
    """Another one with every heartbeat."""
    operators: tuple[OperatorCopies, ...] = ()


def runs(values: Sequence[int | None]) -> tuple[tuple[int, int, int], ...]:
    """The values by index as `(first, end, value)`, without those that are None."""
    found: list[tuple[int, int, int]] = []
    first = 0
    for value, group in groupby(values):
        end = first + sum(1 for _ in group)
        if value is not None:
            found.append((first, end, value))
        first = end
    return tuple(found)


def encode_standby(record: StandbyRecord) -> bytes:
    """The object of a standby (docs/reference/formats/standbys.md)."""
    return frame(_KIND, _VERSION, msgspec.json.encode(record))


def decode_standby(data: bytes, name: str) -> StandbyRecord:
    """What is in an object. Raises `CorruptDataError`, `IncompatibleError`."""
    try:
        record = msgspec.json.decode(unframe(_KIND, _VERSION, data, name).header, type=StandbyRecord)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"the record of a standby does not parse: {error}", object_name=name) from error
    for one in record.operators:
        ranges = [*((first, end) for first, end, _ in one.copies), *one.in_use]
        if not all(0 <= first < end <= one.parallelism for first, end in ranges):
            raise CorruptDataError(
                f"a standby tells of partitions that {one.operator!r} does not have", object_name=name
            )
    return record


def read_standbys(store: ObjectStore, job_id: str) -> tuple[StandbyRecord, ...]:
    """What all standbys of the job tell, but those that cannot be read. Errors are those of the store."""
    found: list[StandbyRecord] = []
    for meta in store.list(layout.STANDBYS):
        try:
            record = decode_standby(store.get(meta.name), meta.name)
        except (CorruptDataError, IncompatibleError):  # gone meanwhile, damaged, or of another version
            continue
        if record.job_id == job_id and layout.standby(record.host) == meta.name:
            found.append(record)
    return tuple(found)
