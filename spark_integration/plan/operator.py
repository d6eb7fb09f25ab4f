"""`OperatorPlan`: one stateful operator of a job as the driver sends it to workers; and the checks of its parts."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.utils import is_remote

from varvite.changelog.types import collections as collection
from varvite.changelog.types.basic import FloatingType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.elements.columns import value_column
from varvite.spark_integration.elements.types import RowElements, TypedElements, pickled_elements
from varvite.spark_integration.functions.implicit_state import HasImplicitState
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.pickling import PickledFunction, pickle_with_broadcasts
from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
from varvite.spark_integration.operators.processors.grouped_function import INITIAL_COLUMN, GroupedFunction
from varvite.spark_integration.operators.processors.stateful_processor import ProcessorFunction
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.implicit_state import ImplicitState
    from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombine
    from varvite.spark_integration.plan.broadcast_input import BroadcastInput
    from varvite.spark_integration.plan.input_branches import BranchedPreparation

PROCESS_FUNCTIONS: Final = (KeyedProcessFunction, VectorizedProcessFunction)
UNNAMED: Final = "unnamed"
"""Stands for the uid in a plan until the job starts."""
RESERVED_PREFIX: Final = "__varvite_"
"""Columns with such names are varvite's own."""
_CASTS: Final = {
    "YearMonthIntervalType": "which pyarrow cannot read: cast it to int, which counts months",
    "CalendarIntervalType": "which Spark cannot send to Python: cast it to string",
    "GeographyType": "which has no form in Python rows: make binary of it with st_asbinary",
    "GeometryType": "which has no form in Python rows: make binary of it with st_asbinary",
}
"""Names of Spark's types that cannot be read, some of which older versions of it do not have."""
_UID_BYTES_MAX: Final = 200
"""A uid becomes one path segment; local file systems take 255 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """Rows that go to an operator with the job's first batch, each to the partition of its key.

    They belong to each attempt of that batch (I3). Once a batch is committed they are never read again.
    """

    rows: DataFrame = field(repr=False)
    columns: tuple[str, ...]
    """Columns that make the key, in the order of the operator's key columns."""
    key_columns: tuple[str, ...]
    """Names of the operator's key columns."""

    def united_with(self, rows: DataFrame) -> DataFrame:
        """The operator's input, with these rows beside it."""
        keys = [F.col(quoted(column)).alias(name) for column, name in zip(self.columns, self.key_columns, strict=True)]
        beside = self.rows.select(*keys, F.struct(F.col("*")).alias(INITIAL_COLUMN))
        return rows.unionByName(beside, allowMissingColumns=True)


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """The rows that an operator reads, if they are not the input of the job or the output of the operator before it."""

    outputs: tuple[tuple[int, int | None], ...]
    """Place of an operator in the job, and the number of its side output; None: its main output."""
    preparation: BranchedPreparation | None = None
    """The step on the rows of sources that it reads as well; None: it reads none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """One stateful operator."""

    uid: str
    """Names the operator's state for ever."""
    name: str
    """For people; the uid by default."""
    key_columns: tuple[str, ...]
    """Input columns that make the key, in order; at least one."""
    key_type: str
    """Type string of the key: the column's type, or a TUPLE of several."""
    output_schema: StructType
    """Columns of the rows that the function yields."""
    timestamp_column: str | None
    """Input column with the event time; None if there is none."""
    function: PickledFunction = field(repr=False)
    """The user's function, or an `ElementOperator` around it, pickled by cloudpickle."""
    has_timers: bool
    """The function is also called when no row comes."""
    parallelism: int | None = None
    """Partitions of this operator; None: as many as the job has."""
    vectorized: bool = False
    """The function is a `VectorizedProcessFunction`."""
    by_partition: bool = False
    """The key of a row is the number of its partition, which `partition_custom` has chosen."""
    prepare: MapSideCombine | None = field(default=None, repr=False)
    """Reduces the operator's input to fewer columns or rows before the shuffle. It keeps the columns of the key and of
    the event time."""
    broadcast: BroadcastInput | None = None
    """The function reads a broadcast stream beside another one; None: it does not."""
    input: OperatorInput | None = None
    """None: the first operator reads the prepared input of the job, any other the output of the one before it."""
    initial_state: InitialState | None = field(default=None, repr=False)
    """Rows that come with the job's first batch; None: none."""
    implicit_states: tuple[ImplicitState, ...] = ()
    """States that hold the user's values although the user's function does not declare them."""

    def arrow_output_schema(self) -> pa.Schema:
        """`output_schema` as Arrow; timestamps in UTC."""
        return _arrow_schema(self.output_schema)


def check_uid(uid: str | None) -> str:
    """Check the uid of an operator. Raises `InvalidRequestError`."""
    if uid is None or not isinstance(uid, str) or not uid.strip():
        raise InvalidRequestError(
            "a stateful operator needs a uid, which names its state for ever: process(..., uid='aircraft')"
        )
    if len(quote(uid, safe="")) > _UID_BYTES_MAX:
        raise InvalidRequestError(f"uid {uid[:40]!r}... is too long; use at most {_UID_BYTES_MAX} letters and digits")
    return uid


def check_columns(schema: StructType, what: str) -> None:
    """Check the names and types of columns. Raises `InvalidRequestError`.

    Args:
        schema: The columns.
        what: Name of the schema in errors.
    """
    names = [name.lower() for name in schema.names]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InvalidRequestError(f"{what} has several columns named {doubled}; rename them")
    reserved = [name for name in names if name.startswith(RESERVED_PREFIX)]
    if reserved:
        raise InvalidRequestError(
            f"{what} has columns {reserved}; names with {RESERVED_PREFIX} are varvite's: rename them"
        )
    for column in schema.fields:
        if problem := _unreadable(column.dataType):
            raise InvalidRequestError(
                f"{what} has the column {column.name!r} of type {column.dataType.simpleString()}, {problem}"
            )


def _unreadable(kind: DataType) -> str:
    """The reason that Python functions cannot get values of a type, with the remedy; empty if they can."""
    if isinstance(kind, StructType):
        doubled = sorted({name for name in kind.names if kind.names.count(name) > 1})
        if doubled:
            return f"which has several fields named {doubled}: rename them"
        return next(filter(None, (_unreadable(part.dataType) for part in kind.fields)), "")
    if isinstance(kind, ArrayType):
        return _unreadable(kind.elementType)
    if isinstance(kind, MapType):
        return _unreadable(kind.keyType) or _unreadable(kind.valueType)
    return _CASTS.get(type(kind).__name__, "")


def column_named(schema: StructType, name: Any) -> Any:
    """The column of this name, in whatever case, as Spark finds it; the name itself if there is none."""
    if name in schema.names or not isinstance(name, str):
        return name
    return next((column for column in schema.names if column.lower() == name.lower()), name)


def key_type_of(schema: StructType, columns: Sequence[str], operator: str | None = None) -> WireType:
    """Type of the key of these columns.

    Raises:
        InvalidRequestError: No columns, a column twice or missing, or a type that cannot be a key.
    """
    if not columns or not all(isinstance(column, str) for column in columns):
        raise InvalidRequestError(
            f"key_by takes names of columns, not {list(columns)!r}; make a column with withColumn first"
        )
    if len(set(columns)) != len(columns):
        raise InvalidRequestError(f"key_by has a column twice: {list(columns)}")
    types = [_key_column_type(schema, column, operator) for column in columns]
    return types[0] if len(types) == 1 else as_type(Types.TUPLE(types))


def _key_column_type(schema: StructType, column: str, operator: str | None) -> WireType:
    if column not in schema.names:
        lower = {name.lower(): name for name in schema.names}
        close = difflib.get_close_matches(column.lower(), lower, 1)
        hint = f"did you mean {lower[close[0]]!r}?" if close else f"the columns are {schema.names}"
        raise InvalidRequestError(f"there is no column {column!r}; {hint}", operator=operator)
    spark_type = schema[column].dataType
    try:
        _check_collation(spark_type)
        key_type = as_type(spark_type)
        problem = _key_problem(key_type)
    except InvalidRequestError as error:
        problem = error.message
        key_type = None
    if key_type is None or problem:
        raise InvalidRequestError(
            f"column {column!r} of type {spark_type.simpleString()} cannot be a key: {problem}", operator=operator
        )
    return key_type


def _check_collation(spark_type: DataType) -> None:
    if isinstance(spark_type, StructType):
        for field_ in spark_type.fields:
            _check_collation(field_.dataType)
    if isinstance(spark_type, StringType) and spark_type != StringType():
        raise InvalidRequestError(
            "its collation takes different strings for equal, but keys are compared by their bytes"
        )


def _key_problem(key_type: WireType) -> str:
    """The reason that values of a type cannot be keys; empty if they can."""
    if isinstance(key_type, CompositeType):
        return next(filter(None, map(_key_problem, key_type.types)), "")
    if isinstance(key_type, FloatingType):
        return "equal numbers may differ by rounding, and NaN equals nothing; cast it to decimal, bigint or string"
    if isinstance(key_type, collection.MapType):
        return "entries of a map have no order, so equal maps may have different bytes; take a struct or a string"
    if isinstance(key_type, collection.ListType):
        return "arrays are mutable values; take a struct, or a string made with concat_ws"
    return "" if key_type.hashable else "its values have no canonical bytes"


def output_schema_of(columns: StructType | str, operator: str | None = None) -> StructType:
    """The output schema of a StructType or a DDL string, with nulls allowed at any depth. Raises `InvalidRequestError`.

    Functions may yield None anywhere, as on Spark, which does not look at NOT NULL either.
    """
    schema: Any = columns
    if isinstance(columns, str):
        try:
            schema = _parsed(columns)
        except (PySparkException, InvalidRequestError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InvalidRequestError(
                f"output schema {columns!r} does not parse: {reason}", operator=operator
            ) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidRequestError(
            f"output schema {columns!r} is no list of columns; write it like 'tailnum string, flights bigint'",
            operator=operator,
        )
    check_columns(schema, "the output schema")
    try:
        _arrow_schema(schema)
    except PySparkException as error:
        raise InvalidRequestError(f"output schema {columns!r} cannot be used: {error}", operator=operator) from None
    return schema.toNullable()


def _parsed(ddl: str) -> DataType:
    """The Spark type of a DDL string; Spark's own parser needs a session."""
    if SparkContext._active_spark_context is None and not is_remote():  # noqa: SLF001  there is no other way
        return from_arrow_type(value_column(as_type(ddl)).arrow_type, prefer_timestamp_ntz=True)
    return DataType.fromDDL(ddl)


def _arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def pickle_function(function: Any, operator: str | None = None) -> PickledFunction:
    """A user's function as bytes. Raises `InvalidRequestError` if it is not a process function or cannot be pickled."""
    if isinstance(function, type) and issubclass(function, PROCESS_FUNCTIONS):
        raise InvalidRequestError(
            f"process takes an instance: {function.__name__}(), not {function.__name__}", operator=operator
        )
    if not isinstance(function, PROCESS_FUNCTIONS):
        raise InvalidRequestError(
            f"process takes a KeyedProcessFunction or a VectorizedProcessFunction, not {type(function).__name__}",
            operator=operator,
        )
    limit: Any = getattr(function, "input_bytes_max", 1)
    if not isinstance(limit, int) or limit < 1:
        raise InvalidRequestError(
            f"input_bytes_max of {type(function).__name__} is {limit!r}; give a number of bytes", operator=operator
        )
    try:
        return pickle_with_broadcasts(SparkContext._active_spark_context, function)  # noqa: SLF001  there is no other way
    except Exception as error:  # user objects may raise anything while they are pickled
        processor: Any = function.processor if isinstance(function, ProcessorFunction) else None
        name, hook = (type(function), "open()") if processor is None else (type(processor), "init()")
        raise InvalidRequestError(
            f"{name.__name__} cannot be sent to the workers: {error}; make connections, locks and sessions in {hook}, "
            "not in the constructor",
            operator=operator,
        ) from error


def timestamp_column_of(schema: StructType, column: str | None) -> str | None:
    """The column, if it exists and holds timestamps; else None."""
    if column is None or column not in schema.names:
        return None
    return column if isinstance(schema[column].dataType, (TimestampType, TimestampNTZType)) else None


def is_window(kind: DataType) -> bool:
    """True for the type that Spark's `window` and `session_window` have: a struct of a start and an end."""
    return (
        isinstance(kind, StructType)
        and kind.names == ["start", "end"]
        and all(isinstance(f.dataType, (TimestampType, TimestampNTZType)) for f in kind.fields)
    )


def plan_operator(
    input_schema: StructType,
    key_columns: Sequence[str],
    function: Any,
    output_schema: StructType | str,
    *,
    uid: str | None,
    name: str | None = None,
    event_time: str | None = None,
    prepare: MapSideCombine | None = None,
) -> OperatorPlan:
    """Check the parts of an operator and plan it.

    Args:
        input_schema: Columns of the rows that come in.
        key_columns: Input columns that make the key.
        function: The user's `KeyedProcessFunction` or `VectorizedProcessFunction`.
        output_schema: Columns of the function's output.
        uid: Name of the state.
        name: For people.
        event_time: Column of the job's input that holds the event time.
        prepare: Reduces the input before the shuffle.

    Raises:
        InvalidRequestError: Any of these cannot be right.
    """
    checked = check_uid(uid)
    pickled = pickle_function(function, checked)
    return OperatorPlan(
        uid=checked,
        name=name or checked,
        key_columns=tuple(key_columns),
        key_type=key_type_of(input_schema, key_columns, checked).type_string(),
        output_schema=output_schema_of(output_schema, checked),
        timestamp_column=timestamp_column_of(input_schema, event_time),
        function=pickled,
        has_timers=_has_timers(function),
        vectorized=isinstance(function, VectorizedProcessFunction),
        prepare=prepare,
        implicit_states=function.implicit_states() if isinstance(function, HasImplicitState) else (),
    )


def _has_timers(function: Any) -> bool:
    """True if the function is also called when no row comes."""
    if isinstance(function, GroupedFunction):
        return function.wants_heartbeats
    return isinstance(function, KeyedProcessFunction) and type(function).on_timer is not KeyedProcessFunction.on_timer


def elements_of(output_type: Any, operator: str | None = None) -> ElementType:
    """The elements of an `output_type`. Raises `InvalidRequestError` if it is none."""
    if output_type is None:
        return pickled_elements()
    if isinstance(output_type, (str, StructType)):
        return RowElements(output_schema_of(output_type, operator))
    elements = TypedElements(as_type(output_type))
    check_columns(elements.schema, "the output type")
    return elements
