"""State as DataFrames: Spark's Python data sources `varvite-state` and `varvite-changelog`.

Options: `path` (root of the storage; also what `load` is given), `job`, `operator` and `state` (left out: all),
`checkpoint` (a seq, `batch:7` or `savepoint:<name>`; left out: the newest when the plan is made; in `varvite-state`
also `retained`: all that are complete), `pin` (`false` for a storage that can only be read), `storageOptions` (fsspec's
options, as a JSON object), `keyGroups`, `seqs` and `batches` (`7`, `2-7` or `2-`: only these). The columns of one state
are those of `varvite.changelog.reading.columns`, of several those of `varvite.changelog.reading.shared_columns`, after
`seq`, `batch`, `operator` and `state`.

There is a partition per checkpoint, operator and range of key groups, restored by its task on the executor. What is
read at all, the options decide, and filters of `seq`, `batch`, `operator`, `state` and `key_group` if these are pushed
down. All tasks read the checkpoint that was planned with, a savepoint by its name, and each pins it while it reads. If
it is collected before they begin, the query fails and says so: keep it with `varvite.open_state`.

Spark keeps one plan of what is read per `load()` (`PythonDataSourceV2.readInfo`). So every query of a DataFrame reads
the checkpoint that the first one was planned with. Every push-down replaces the plan: a query without filters that can
be pushed, or a second branch of a query, reads what the last filters left, and rows are missing. That is why filters
are pushed down only where the user has asked for it.

Invariants: I5, I7, I8 (as `StateReader`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from varvite.changelog.reading.change_feed import ALL_SEQS, SHARED_CHANGES, ChangeFeed, SeqRange
from varvite.changelog.reading.checkpoints import SAVEPOINT, complete_checkpoints
from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.reader import StateReader, open_state
from varvite.changelog.reading.shared_columns import SHARED, shared
from varvite.spark_integration.connectors.state_table.pushed_filters import Numbers, Pushed
from varvite.storage.errors import InvalidRequestError, StateMissingError
from varvite.storage.object_stores.open import absolute_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from varvite.storage.format.records import Link, StateSchema

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
RETAINED: Final = "retained"
"""As `checkpoint`: all that are complete."""
_NUMBERS: Final = {"keygroups": "key_group", "seqs": "seq", "batches": "batch"}
"""Option → the column of numbers that it bounds."""
_KNOWN: Final = frozenset({"path", "job", "operator", "state", "checkpoint", "pin", "storageoptions", *_NUMBERS})
_LOAD_ANEW: Final = "a DataFrame reads what its first query was planned with, so load() it anew"
_arrow: Final[Any] = pa
_PLACE: Final = (
    pa.field("seq", pa.int64()),
    pa.field("batch", pa.int64()),
    pa.field("operator", pa.string()),
    pa.field("state", pa.string()),
)


def register_data_sources(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Make `spark.read.format("varvite-state")` and `"varvite-changelog"` known to a session.

    Args:
        spark: The session.
        push_filters: Push filters of a query down to the source, and switch on what Spark asks for this
            (`spark.sql.python.filterPushdown.enabled`). Every query must then `load()` its own DataFrame, once for
            each use in it: of one that is used twice Spark 4.3 reads for both uses what the last filters left.
    """
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    for source in (PushedStateSource, PushedChangelogSource) if push_filters else (StateSource, ChangelogSource):
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
    numbers: dict[str, Numbers]
    """Column → what the options leave of it."""

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
            path=absolute_url(given["path"]),  # an executor has another working directory
            job=given["job"],
            operator=given.get("operator"),
            state=given.get("state"),
            checkpoint=given.get("checkpoint"),
            pin=pin == "true",
            storage_options=_json_object(given.get("storageoptions")),
            numbers={column: _numbers(option, given.get(option)) for option, column in _NUMBERS.items()},
        )

    def open(self, checkpoint: int | str | None = None) -> StateReader:
        """The reader; at another checkpoint than the options say if one is given."""
        wanted = self.checkpoint if checkpoint is None else checkpoint
        return open_state(self.path, self.job, wanted, storage_options=self.storage_options, pin=self.pin)

    def newest(self) -> StateReader:
        """The reader of the newest checkpoint that the options name."""
        if self.checkpoint != RETAINED:
            return self.open()
        return open_state(self.path, self.job, None, storage_options=self.storage_options, pin=self.pin)

    def name_of(self, reader: StateReader) -> int | str:
        """How tasks name the checkpoint of a reader: a savepoint's may be gone from the chain."""
        named = self.checkpoint
        return named if named is not None and named.startswith(SAVEPOINT) else reader.checkpoint.seq


@dataclass(frozen=True)
class OperatorStates:
    """The states of an operator that the options choose."""

    operator: str
    key_type: str
    states: tuple[StateSchema, ...]


def chosen_states(reader: StateReader, options: ReadOptions) -> tuple[OperatorStates, ...]:
    """What the options choose of a checkpoint. Raises `InvalidRequestError` if there is no such operator or state."""
    layouts = reader.checkpoint.operators if options.operator is None else (reader.layout(options.operator),)
    found = [
        OperatorStates(own.uid, own.key_type, tuple(one for one in own.states if options.state in (None, one.name)))
        for own in layouts
    ]
    if not any(one.states for one in found):
        there = ", ".join(f"{own.uid}.{one.name}" for own in layouts for one in own.states) or "none"
        wanted = f"state {options.state!r}" if options.state else "state"
        raise InvalidRequestError(f"there is no {wanted} in job {options.job!r}; it has {there}")
    return tuple(one for one in found if one.states)


def _is_one(chosen: tuple[OperatorStates, ...]) -> bool:
    return len(chosen) == 1 and len(chosen[0].states) == 1


@dataclass
class RangePartition(InputPartition):
    """What a task reads."""

    checkpoint: int | str
    """Its seq, or the savepoint."""
    at: Link
    """The commit that it was when the query was planned."""
    chosen: OperatorStates
    is_typed: bool
    """Whether the table is of one state, with columns of its types."""
    low: int
    high: int
    """Key groups `[low, high)`."""
    seqs: SeqRange = ALL_SEQS
    """Of the changes; only of the change feed."""


class StateReading(DataSourceReader):
    """Reads states."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed(options.numbers, {"operator": None, "state": None})

    def partitions(self) -> list[RangePartition]:
        """One per checkpoint, operator and range; none if the filters leave nothing."""
        newest = self._options.newest()
        chosen = chosen_states(newest, self._options)
        return [
            partition
            for reader in self._readers(newest)
            for partition in self._of_checkpoint(reader, chosen, is_typed=_is_one(chosen))
        ]

    def _readers(self, newest: StateReader) -> Iterator[StateReader]:
        """Of the checkpoints that the filters leave."""
        is_all = self._options.checkpoint == RETAINED
        commits = complete_checkpoints(newest.chain) if is_all else [newest.checkpoint]
        numbers = self._pushed.numbers
        for commit in commits:
            if commit.seq in numbers["seq"] and commit.batch in numbers["batch"]:
                is_newest = commit.link == newest.checkpoint.link
                yield newest if is_newest else self._options.open(commit.seq)

    def _of_checkpoint(
        self, reader: StateReader, chosen: tuple[OperatorStates, ...], *, is_typed: bool
    ) -> Iterator[RangePartition]:
        wanted = self._pushed.numbers["key_group"].within(reader.wanted(None))
        left = [one for one in map(self._left, chosen) if one.states and one.operator in reader.operators]
        if not wanted or not left:
            return
        name = self._options.name_of(reader)
        with reader:
            for one in left:
                for part in reader.split(one.operator, wanted):
                    narrow = self._pushed.numbers["key_group"].within(part)
                    if narrow:
                        at = reader.checkpoint.link
                        yield RangePartition(name, at, one, is_typed, narrow.start, narrow.stop)

    def _left(self, chosen: OperatorStates) -> OperatorStates:
        """What the filters leave."""
        is_wanted = self._pushed.passes("operator", chosen.operator)
        states = tuple(one for one in chosen.states if is_wanted and self._pushed.passes("state", one.name))
        return OperatorStates(chosen.operator, chosen.key_type, states)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        if not isinstance(partition, RangePartition):  # Spark's own, when there is none of ours
            return
        reader = self._planned(partition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._batches(reader, partition):
            yield batch if batch.schema.equals(schema) else _cast(batch, schema)

    def _planned(self, partition: RangePartition) -> StateReader:
        """The reader of what the query was planned with."""
        try:
            reader = self._options.open(partition.checkpoint)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{error.message}; {_LOAD_ANEW}", **error.context) from error
        if reader.checkpoint.link != partition.at:
            raise StateMissingError(
                f"{partition.checkpoint} was replaced since the query was planned, when it was of seq "
                f"{partition.at.seq}; {_LOAD_ANEW}"
            )
        return reader

    def _batches(self, reader: StateReader, partition: RangePartition) -> Iterator[Any]:
        """Rows that match key groups exactly: the range may have some between those of an IN."""
        chosen, key_groups = partition.chosen, self._pushed.numbers["key_group"]
        for restored in reader.ranges(chosen.operator, range(partition.low, partition.high)):
            for state in chosen.states:
                columns = StateColumns(chosen.key_type, state)
                rows = columns.rows(restored.store, reader.time)
                if key_groups.among is not None:
                    rows = (row for row in rows if row[0] in key_groups)
                for batch in columns.batches(rows):
                    own = batch if partition.is_typed else shared(batch)
                    yield _placed(own, (reader.checkpoint.seq, reader.checkpoint.batch, chosen.operator, state.name))


class ChangelogReading(StateReading):
    """Reads a change feed."""

    def _readers(self, newest: StateReader) -> Iterator[StateReader]:
        if self._options.checkpoint == RETAINED:
            raise InvalidRequestError("a change feed leads to one checkpoint: option 'checkpoint' names it")
        yield newest

    def _of_checkpoint(
        self, reader: StateReader, chosen: tuple[OperatorStates, ...], *, is_typed: bool
    ) -> Iterator[RangePartition]:
        """As of states, each with the seqs that the filters leave."""
        seqs = self._pushed.numbers["seq"].within(range(reader.checkpoint.seq + 1))
        batches = self._pushed.numbers["batch"]
        if seqs and not batches.is_all:
            with reader:
                feed = ChangeFeed(reader, chosen[0].operator, tuple(one.name for one in chosen[0].states))
                numbers = feed.batch_numbers(SeqRange(seqs.start, seqs.stop))
            wanted = [seq for seq, batch in numbers.items() if batch in batches]
            seqs = range(min(wanted), max(wanted) + 1) if wanted else range(0)
        if not seqs:
            return
        for one in super()._of_checkpoint(reader, chosen, is_typed=is_typed):
            one.seqs = SeqRange(seqs.start, seqs.stop)
            yield one

    def _batches(self, reader: StateReader, partition: RangePartition) -> Iterator[Any]:
        names = tuple(one.name for one in partition.chosen.states)
        feed = ChangeFeed(reader, partition.chosen.operator, names[0] if partition.is_typed else names)
        numbers = self._pushed.numbers
        for batch in feed.batches(range(partition.low, partition.high), partition.seqs):
            for column, passing in numbers.items():
                batch = batch if passing.is_all else _only(batch, column, passing)  # noqa: PLW2901 - the rest of it
            yield batch


class _Pushing(StateReading):
    """Takes filters; Spark refuses such a reader while its own option is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what bounds a column exactly; Spark applies the rest."""
        for one in filters:
            taken = self._pushed.take(one)
            if taken is None:
                yield one
            else:
                self._pushed = taken


class PushedStateReading(_Pushing, StateReading):
    """Reads what filters leave of states."""


class PushedChangelogReading(_Pushing, ChangelogReading):
    """Reads what filters leave of a change feed."""


class StateSource(DataSource):
    """`varvite-state`."""

    @classmethod
    def name(cls) -> str:
        return "varvite-state"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        chosen = chosen_states(options.newest(), options)
        own = StateColumns(chosen[0].key_type, chosen[0].states[0]).schema if _is_one(chosen) else SHARED
        return from_arrow_schema(pa.schema([*_PLACE, *own]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return StateReading(ReadOptions.of(dict(self.options)), schema)


class ChangelogSource(DataSource):
    """`varvite-changelog`."""

    @classmethod
    def name(cls) -> str:
        return "varvite-changelog"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        reader = options.open()
        chosen = chosen_states(reader, options)
        is_one = _is_one(chosen)
        own = ChangeFeed(reader, chosen[0].operator, chosen[0].states[0].name).schema if is_one else SHARED_CHANGES
        return from_arrow_schema(own)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ChangelogReading(ReadOptions.of(dict(self.options)), schema)


class PushedStateSource(StateSource):
    """`varvite-state`, to which filters are pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushedStateReading(ReadOptions.of(dict(self.options)), schema)


class PushedChangelogSource(ChangelogSource):
    """`varvite-changelog`, to which filters are pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushedChangelogReading(ReadOptions.of(dict(self.options)), schema)


def _placed(batch: Any, place: tuple[int, int, str, str]) -> Any:
    """A batch after the columns that say of what it is."""
    count = batch.num_rows
    columns = [_arrow.repeat(pa.scalar(value, field.type), count) for value, field in zip(place, _PLACE, strict=True)]
    return _arrow.RecordBatch.from_arrays([*columns, *batch.columns], schema=pa.schema([*_PLACE, *batch.schema]))


def _cast(batch: Any, schema: Any) -> Any:
    try:
        return batch.cast(schema)
    except (ValueError, pa.ArrowException) as error:
        raise InvalidRequestError(
            f"the columns are {batch.schema.to_string()}, which are not those of the DataFrame ({error}): the state "
            "has changed since load(), or the schema is your own; load() it anew, without a schema"
        ) from error


def _only(batch: Any, column: str, numbers: Numbers) -> Any:
    """The rows of a batch whose number passes; null does not."""
    passes = [number is not None and number in numbers for number in batch.column(column).to_pylist()]
    return batch.filter(pa.array(passes, pa.bool_()))


def _numbers(option: str, text: str | None) -> Numbers:
    try:
        return Numbers() if text is None else Numbers.parse(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {option!r}: {error}") from error


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
