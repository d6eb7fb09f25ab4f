"""State as DataFrames: Spark's Python data sources `varve-state` and `varve-changelog`.

Options: `path` (root of the storage; also what `load` is given), `job`, `operator` and `state` (may be left out if
there is only one), `checkpoint` (a seq or `batch:7`; the newest when the plan is made), `pin` (`false` for a storage
that can only be read), `storageOptions` (fsspec's options, as a JSON object). The columns are those of
`varve.changelog.state_columns` and `varve.changelog.change_feed`.

There is a partition per range of key groups, restored by its task on the executor. Filters of `key_group`, and in the
change feed of `seq` and `batch`, decide what is read at all. All tasks read the same checkpoint, and each pins it while
it reads. If it is collected before they begin, the query fails and says so: keep it with `varve.open_state`.

Invariants: I5, I7, I8 (as `StateReader`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from varve.changelog.change_feed import ChangeFeed, SeqRange
from varve.changelog.state_reader import StateReader, open_state
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_KNOWN: Final = frozenset({"path", "job", "operator", "state", "checkpoint", "pin", "storageoptions"})
_END: Final = (1 << 63) - 1


def register_data_sources(spark: SparkSession) -> None:
    """Make `spark.read.format("varve-state")` and `"varve-changelog"` known to a session.

    Switches Spark's filter push-down for Python data sources on (`spark.sql.python.filterPushdown.enabled`).
    """
    spark.conf.set(PUSHDOWN, "true")
    for source in (StateSource, ChangelogSource):
        spark.dataSource.register(source)


@dataclass(frozen=True)
class ReadOptions:
    """What the options say."""

    path: str
    job: str
    operator: str | None
    state: str | None
    checkpoint: str | None
    pin: bool
    storage_options: dict[str, Any] | None

    @classmethod
    def of(cls, options: dict[str, str]) -> ReadOptions:
        """Raises `InvalidRequestError` for options that are missing, unknown or wrong."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - _KNOWN)
        if unknown:
            raise InvalidRequestError(f"unknown options {unknown}; there are {sorted(_KNOWN)}")
        for name in ("path", "job"):
            if not given.get(name):
                raise InvalidRequestError(f"option {name!r} is missing: say which job of which storage to read")
        pin = given.get("pin", "true").lower()
        if pin not in ("true", "false"):
            raise InvalidRequestError(f"option 'pin' is true or false, not {given['pin']!r}")
        return cls(
            path=given["path"],
            job=given["job"],
            operator=given.get("operator"),
            state=given.get("state"),
            checkpoint=given.get("checkpoint"),
            pin=pin == "true",
            storage_options=_json_object(given.get("storageoptions")),
        )

    def open(self, checkpoint: int | str | None = None) -> StateReader:
        """The reader; at another checkpoint than the options say if one is given."""
        wanted = self.checkpoint if checkpoint is None else checkpoint
        return open_state(self.path, self.job, wanted, storage_options=self.storage_options, pin=self.pin)


@dataclass
class KeyGroupPartition(InputPartition):
    """What a task reads."""

    checkpoint: int
    """Its seq."""
    low: int
    high: int
    """Key groups `[low, high)`."""
    seq_low: int = 0
    seq_high: int = _END
    """Changes of seqs `[seq_low, seq_high)`; only of the change feed."""


class StateReading(DataSourceReader):
    """Reads a state."""

    pushed: tuple[str, ...] = ("key_group",)
    """Columns whose filters decide what is read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = {name: range(_END) for name in self.pushed}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what bounds a column; Spark applies the rest, and what is not bounded exactly."""
        for one in filters:
            name = ".".join(getattr(one, "attribute", ()))
            bounds = _bounds_of(one) if name in self._bounds else None
            if bounds is None:
                yield one
                continue
            self._bounds[name] = _common(self._bounds[name], bounds)
            if isinstance(one, In):
                yield one

    def partitions(self) -> list[KeyGroupPartition]:
        """One per range; none if the filters leave nothing."""
        reader = self._options.open()
        wanted = _common(self._bounds["key_group"], reader.wanted(None))
        if not wanted:
            return []
        with reader:
            found = reader.split(self._options.operator, wanted)
        return [KeyGroupPartition(reader.checkpoint.seq, one.start, one.stop) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        if not isinstance(partition, KeyGroupPartition):  # Spark's own, when there is none of ours
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._batches(self._options.open(partition.checkpoint), partition):
            yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _batches(self, reader: StateReader, partition: KeyGroupPartition) -> Iterator[Any]:
        key_groups = range(partition.low, partition.high)
        return reader.batches(self._options.operator, self._options.state, key_groups)


class ChangelogReading(StateReading):
    """Reads a change feed."""

    pushed = ("key_group", "seq", "batch")

    def partitions(self) -> list[KeyGroupPartition]:
        """As of a state, each with the seqs that the filters leave."""
        found = super().partitions()
        seqs = self._bounds["seq"]
        if found and self._bounds["batch"] != range(_END):
            reader = self._options.open(found[0].checkpoint)
            with reader:
                numbers = ChangeFeed(reader, self._options.operator, self._options.state).batch_numbers()
            wanted = [seq for seq, batch in numbers.items() if batch in self._bounds["batch"]]
            seqs = _common(seqs, range(min(wanted), max(wanted) + 1) if wanted else range(0))
        for one in found:
            one.seq_low, one.seq_high = seqs.start, seqs.stop
        return found if seqs else []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """As of a state; batches become seqs, so Spark filters those as well."""
        left = list(super().pushFilters(filters))
        return [one for one in filters if one in left or getattr(one, "attribute", None) == ("batch",)]

    def _batches(self, reader: StateReader, partition: KeyGroupPartition) -> Iterator[Any]:
        feed = ChangeFeed(reader, self._options.operator, self._options.state)
        return feed.batches(range(partition.low, partition.high), SeqRange(partition.seq_low, partition.seq_high))


class StateSource(DataSource):
    """`varve-state`."""

    @classmethod
    def name(cls) -> str:
        return "varve-state"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        return from_arrow_schema(options.open().columns(options.operator, options.state).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return StateReading(ReadOptions.of(dict(self.options)), schema)


class ChangelogSource(DataSource):
    """`varve-changelog`."""

    @classmethod
    def name(cls) -> str:
        return "varve-changelog"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        return from_arrow_schema(ChangeFeed(options.open(), options.operator, options.state).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ChangelogReading(ReadOptions.of(dict(self.options)), schema)


_BOUNDS: Final[dict[type[Filter], Callable[[int], range]]] = {
    EqualTo: lambda value: range(value, value + 1),
    GreaterThan: lambda value: range(value + 1, _END),
    GreaterThanOrEqual: lambda value: range(value, _END),
    LessThan: range,
    LessThanOrEqual: lambda value: range(value + 1),
}


def _bounds_of(one: Filter) -> range | None:
    """The numbers that may pass a filter; None if it does not say."""
    value: Any = getattr(one, "value", None)
    if isinstance(one, In):
        is_bounded = bool(value) and all(type(number) is int for number in value)
        return range(min(value), max(value) + 1) if is_bounded else None
    bounds = _BOUNDS.get(type(one))
    return bounds(value) if bounds is not None and type(value) is int else None


def _common(one: range, other: range) -> range:
    low = max(one.start, other.start)
    return range(low, max(low, min(one.stop, other.stop)))


def _json_object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"option 'storageOptions' is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"option 'storageOptions' is a JSON object, not {text}")
    return value
