"""The record of a host's standby in the storage: the partitions that it has copies of, and the version of each copy.

The driver prefers such hosts for a partition that has lost its executor, and standbys share the partitions by these
records. No correctness depends on them: a damaged, missing or outdated record only costs a restore (I9).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format import layout
from varvite.storage.format.frame import decode_json, frame, unframe
from varvite.storage.format.identity import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.object_stores.contract import ObjectStore

_KIND: Final = b"STBY"
_VERSION: Final = 1


class OperatorCopies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The copies of an operator's state on one host, by partition (whose key groups are those of `key_range`)."""

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
    """The host's name, unique among the standbys of the job."""
    names: tuple[str, ...]
    """Names of the host, Spark's name for it among them."""
    counter: int = 0
    """A number that changes with every heartbeat."""
    operators: tuple[OperatorCopies, ...] = ()


def runs(values: Sequence[int | None]) -> tuple[tuple[int, int, int], ...]:
    """The values by index as `(first, end, value)`, without None."""
    result: list[tuple[int, int, int]] = []
    first = 0
    for value, group in groupby(values):
        end = first + sum(1 for _ in group)
        if value is not None:
            result.append((first, end, value))
        first = end
    return tuple(result)


def encode_standby(record: StandbyRecord) -> bytes:
    """The object of a standby (docs/reference/formats/standbys.md)."""
    return frame(_KIND, _VERSION, msgspec.json.encode(record))


def decode_standby(data: bytes, name: str) -> StandbyRecord:
    """The record in an object. Raises `CorruptDataError`, `IncompatibleError`."""
    header = unframe(_KIND, _VERSION, data, name).header
    record: StandbyRecord = decode_json(header, StandbyRecord, "the record of a standby", name)
    for operator in record.operators:
        ranges = [*((first, end) for first, end, _ in operator.copies), *operator.in_use]
        if not all(0 <= first < end <= operator.parallelism for first, end in ranges):
            raise CorruptDataError(
                f"a standby's record names partitions that {operator.operator!r} does not have", object_name=name
            )
    return record


def read_standbys(store: ObjectStore, job_id: str) -> tuple[StandbyRecord, ...]:
    """Read the records of all standbys of the job; unreadable ones are skipped. Errors are those of the store."""
    records: list[StandbyRecord] = []
    for meta in store.list(layout.STANDBYS):
        try:
            record = decode_standby(store.get(meta.name), meta.name)
            check_name(meta.name, layout.standby, record.host)
        except (CorruptDataError, IncompatibleError):  # deleted meanwhile, damaged, or of another version
            continue
        if record.job_id == job_id:
            records.append(record)
    return tuple(records)
