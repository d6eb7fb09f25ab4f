"""State as DataFrames: Spark's Python data sources `varvite-state` and `varvite-changelog`.

Options: `path` (root of the storage; also what `load` is given), `job`, `operator` and `state` (left out: all),
`checkpoint` (a seq, `batch:7` or `savepoint:<name>`; left out: the newest when the plan is made; in `varvite-state`
also `retained`: all that are complete), `pin` (`false` for a storage that can only be read), `storageOptions` (fsspec's
options, as a JSON object), `keyGroups`, `seqs` and `batches` (`7`, `2-7` or `2-`: only these). The columns of one state
are those of `varvite.changelog.reading.columns`, of several those of `varvite.changelog.reading.shared_columns`, after
`seq`, `batch`, `operator` and `state`.

There is a partition per checkpoint, operator and range of key groups, restored by its task on the executor. The options
select what is read, and so do filters of `seq`, `batch`, `operator`, `state` and `key_group` if they are pushed down.
All tasks read the planned checkpoint, a savepoint by its name, and each pins it while it reads. If it is collected
before they begin, the query fails and says so: keep it with `varvite.open_state`.

Spark keeps one plan per `load()` (`PythonDataSourceV2.readInfo`). So every query of a DataFrame reads the checkpoint
that the first one was planned with. Every push-down replaces the plan: a query without filters that can be pushed, or a
second branch of a query, reads only the rows of the last filters. So filters are pushed down only on request.

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
"""Value of `checkpoint` for all complete ones."""
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
    """Register `spark.read.format("varvite-state")` and `"varvite-changelog"` in a session.

    Args:
        spark: The session.
        push_filters: Push filters of a query down to the source, and enable this in Spark
            (`spark.sql.python.filterPushdown.enabled`). Every query must then `load()` its own DataFrame, once for
            each use in it: for both uses of one DataFrame Spark 4.3 reads only the rows of the last filters.
    """
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    for source in (PushedStateSource, PushedChangelogSource) if push_filters else (StateSource, ChangelogSource):
        spark.dataSource.register(source)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a source, parsed."""

    path: str
    job: str
    operator: str | None
    state: str | None
    checkpoint: str | None
    pin: bool
    storage_options: dict[str, Any] | None
    numbers: dict[str, Numbers]
    """Column → the numbers that the options allow."""

    @classmethod
    def of(cls, options: dict[str, str]) -> ReadOptions:
        """Raises `InvalidRequestError` for options that are missing, unknown or wrong."""
        values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(values) - _KNOWN)
        if unknown:
            raise InvalidRequestError(f"unknown options {unknown}; there are {sorted(_KNOWN)}")
        for name in ("path", "job"):
            if not values.get(name):
                raise InvalidRequestError(f"option {name!r} is missing: say which job of which storage to read")
        pin = values.get("pin", "true").lower()
        if pin not in ("true", "false"):
            raise InvalidRequestError(f"option 'pin' is true or false, not {values['pin']!r}")
        return cls(
            path=absolute_url(values["path"]),  # an executor has another working directory
            job=values["job"],
            operator=values.get("operator"),
            state=values.get("state"),
            checkpoint=values.get("checkpoint"),
            pin=pin == "true",
            storage_options=_json_object(values.get("storageoptions")),
            numbers={column: _numbers(option, values.get(option)) for option, column in _NUMBERS.items()},
        )

    def open(self, checkpoint: int | str | None = None) -> StateReader:
        """The reader at a checkpoint, by default that of the options."""
        at = self.checkpoint if checkpoint is None else checkpoint
        return open_state(self.path, self.job, at, storage_options=self.storage_options, pin=self.pin)

    def newest(self) -> StateReader:
        """The reader of the newest checkpoint among those of the options."""
        if self.checkpoint != RETAINED:
            return self.open()
        return open_state(self.path, self.job, None, storage_options=self.storage_options, pin=self.pin)

    def name_of(self, reader: StateReader) -> int | str:
        """The checkpoint of a reader as tasks name it: a savepoint by its name, as its commit may be gone."""
        named = self.checkpoint
        return named if named is not None and named.startswith(SAVEPOINT) else reader.checkpoint.seq


@dataclass(frozen=True)
class OperatorStates:
    """The states of an operator that the options select."""

    operator: str
    key_type: str
    states: tuple[StateSchema, ...]


def chosen_states(reader: StateReader, options: ReadOptions) -> tuple[OperatorStates, ...]:
    """The states of a checkpoint that the options select. Raises `InvalidRequestError` if there are none."""
    layouts = reader.checkpoint.operators if options.operator is None else (reader.layout(options.operator),)
    chosen = [
        OperatorStates(layout.uid, layout.key_type, tuple(s for s in layout.states if options.state in (None, s.name)))
        for layout in layouts
    ]
    if not any(operator.states for operator in chosen):
        present = ", ".join(f"{layout.uid}.{state.name}" for layout in layouts for state in layout.states) or "none"
        missing = f"state {options.state!r}" if options.state else "state"
        raise InvalidRequestError(f"there is no {missing} in job {options.job!r}; it has {present}")
    return tuple(operator for operator in chosen if operator.states)


def _is_one_state(chosen: tuple[OperatorStates, ...]) -> bool:
    return len(chosen) == 1 and len(chosen[0].states) == 1


@dataclass
class RangePartition(InputPartition):
    """The part that a task reads."""

    checkpoint: int | str
    """Its seq, or the savepoint."""
    at: Link
    """The commit that it was when the query was planned."""
    chosen: OperatorStates
    is_typed: bool
    """The table is of one state, with columns of its types."""
    low: int
    high: int
    """Key groups `[low, high)`."""
    seqs: SeqRange = ALL_SEQS
    """Seqs of the changes; for the change feed only."""


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
            for partition in self._of_checkpoint(reader, chosen, is_typed=_is_one_state(chosen))
        ]

    def _readers(self, newest: StateReader) -> Iterator[StateReader]:
        """Readers of the checkpoints that pass the filters."""
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
        key_groups = self._pushed.numbers["key_group"].within(reader.selected(None))
        operators = [o for o in map(self._filtered, chosen) if o.states and o.operator in reader.operators]
        if not key_groups or not operators:
            return
        name = self._options.name_of(reader)
        with reader:
            for operator in operators:
                for part in reader.split(operator.operator, key_groups):
                    narrow = self._pushed.numbers["key_group"].within(part)
                    if narrow:
                        at = reader.checkpoint.link
                        yield RangePartition(name, at, operator, is_typed, narrow.start, narrow.stop)

    def _filtered(self, chosen: OperatorStates) -> OperatorStates:
        """The states that pass the filters."""
        passes = self._pushed.passes("operator", chosen.operator)
        states = tuple(state for state in chosen.states if passes and self._pushed.passes("state", state.name))
        return OperatorStates(chosen.operator, chosen.key_type, states)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        if not isinstance(partition, RangePartition):  # Spark makes one of its own when there are none
            return
        reader = self._planned(partition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._batches(reader, partition):
            yield batch if batch.schema.equals(schema) else _cast(batch, schema)

    def _planned(self, partition: RangePartition) -> StateReader:
        """The reader of the planned checkpoint."""
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
        """The rows whose key group passes the filters; the range may have others between those of an IN."""
        chosen, key_groups = partition.chosen, self._pushed.numbers["key_group"]
        for restored in reader.ranges(chosen.operator, range(partition.low, partition.high)):
            for state in chosen.states:
                columns = StateColumns(chosen.key_type, state)
                rows = columns.rows(restored.store, reader.time)
                if key_groups.among is not None:
                    rows = (row for row in rows if row[0] in key_groups)
                for batch in columns.batches(rows):
                    columns_of_table = batch if partition.is_typed else shared(batch)
                    yield _placed(
                        columns_of_table, (reader.checkpoint.seq, reader.checkpoint.batch, chosen.operator, state.name)
                    )


class ChangelogReading(StateReading):
    """Reads a change feed."""

    def _readers(self, newest: StateReader) -> Iterator[StateReader]:
        if self._options.checkpoint == RETAINED:
            raise InvalidRequestError("a change feed leads to one checkpoint: option 'checkpoint' names it")
        yield newest

    def _of_checkpoint(
        self, reader: StateReader, chosen: tuple[OperatorStates, ...], *, is_typed: bool
    ) -> Iterator[RangePartition]:
        """Partitions as for states, each with the seqs that pass the filters."""
        seqs = self._pushed.numbers["seq"].within(range(reader.checkpoint.seq + 1))
        batches = self._pushed.numbers["batch"]
        if seqs and not batches.is_all:
            with reader:
                feed = ChangeFeed(reader, chosen[0].operator, tuple(state.name for state in chosen[0].states))
                numbers = feed.batch_numbers(SeqRange(seqs.start, seqs.stop))
            passing = [seq for seq, batch in numbers.items() if batch in batches]
            seqs = range(min(passing), max(passing) + 1) if passing else range(0)
        if not seqs:
            return
        for partition in super()._of_checkpoint(reader, chosen, is_typed=is_typed):
            partition.seqs = SeqRange(seqs.start, seqs.stop)
            yield partition

    def _batches(self, reader: StateReader, partition: RangePartition) -> Iterator[Any]:
        names = tuple(state.name for state in partition.chosen.states)
        feed = ChangeFeed(reader, partition.chosen.operator, names[0] if partition.is_typed else names)
        numbers = self._pushed.numbers
        for batch in feed.batches(range(partition.low, partition.high), partition.seqs):
            for column, passing in numbers.items():
                batch = batch if passing.is_all else _only(batch, column, passing)  # noqa: PLW2901 - the rest of it
            yield batch


class _Pushing(StateReading):
    """Accepts filters; Spark refuses such a reader while its own option is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept the filters that bound a column exactly; Spark applies the rest."""
        for condition in filters:
            narrowed = self._pushed.take(condition)
            if narrowed is None:
                yield condition
            else:
                self._pushed = narrowed


class PushedStateReading(_Pushing, StateReading):
    """Reads states, with filters."""


class PushedChangelogReading(_Pushing, ChangelogReading):
    """Reads a change feed, with filters."""


class StateSource(DataSource):
    """`varvite-state`."""

    @classmethod
    def name(cls) -> str:
        return "varvite-state"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        chosen = chosen_states(options.newest(), options)
        columns = StateColumns(chosen[0].key_type, chosen[0].states[0]).schema if _is_one_state(chosen) else SHARED
        return from_arrow_schema(pa.schema([*_PLACE, *columns]))

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
        if not _is_one_state(chosen):
            return from_arrow_schema(SHARED_CHANGES)
        return from_arrow_schema(ChangeFeed(reader, chosen[0].operator, chosen[0].states[0].name).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ChangelogReading(ReadOptions.of(dict(self.options)), schema)


class PushedStateSource(StateSource):
    """`varvite-state` with filters pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushedStateReading(ReadOptions.of(dict(self.options)), schema)


class PushedChangelogSource(ChangelogSource):
    """`varvite-changelog` with filters pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushedChangelogReading(ReadOptions.of(dict(self.options)), schema)


def _placed(batch: Any, place: tuple[int, int, str, str]) -> Any:
    """A batch with its seq, batch, operator and state in front."""
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
    """The rows of a batch whose number in a column passes; null does not."""
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
