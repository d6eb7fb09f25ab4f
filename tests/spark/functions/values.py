"""Odd values of every type in every place, and processors that tell what they get and what is taken of them.

The same processor runs on Spark's engine and on varvite. What an engine would refuse is tried before by the engine's
own conversion, so that one job has all cells: a refusal would end it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor_api_client import _normalize_state_value
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _make_type_verifier,
)

LOCAL = "America/New_York"
"""Zone of the workers' machine."""
SESSION = "Europe/Berlin"
EAST = timezone(timedelta(hours=5))
TWICE_HERE = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]
TWICE_THERE = [datetime(2024, 10, 27, hour, 30, tzinfo=UTC) for hour in (0, 1)]
NOON = datetime(2024, 7, 1, 12)  # noqa: DTZ001
LONG_TEXT = "x" * 100_000

TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "decimal(38,0)": DecimalType(38, 0),
    "decimal(10,2)": DecimalType(10, 2),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
INPUTS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [127, -128],
    "bigint": [2**53 + 1, 2**63 - 1, -(2**63), 0],
    "float": [math.nan, -0.0, math.inf, 1.5],
    "double": [math.nan, -0.0, math.inf, -math.inf, 5e-324],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(0)],
    "decimal(10,2)": [Decimal("1.50"), Decimal("99999999.99")],
    "string": ["", "é\0\U0001f600", LONG_TEXT],
    "binary": [b"", b"\x00\xff", b"x" * 100_000],
    "date": [date.min, date.max, date(2024, 2, 29)],
    "timestamp": [*TWICE_HERE, *TWICE_THERE, datetime(1950, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    "timestamp_ntz": [NOON, NOON.replace(microsecond=1)],
}
"""Values of rows that come in; null comes beside each."""
OUTPUTS: dict[str, dict[str, Any]] = {
    "boolean": {"None": None, "True": True, "numpy": np.True_, "1": 1, "text": "true"},
    "tinyint": {"None": None, "127": 127, "128": 128},
    "bigint": {
        "None": None, "2^53+1": 2**53 + 1, "2^63-1": 2**63 - 1, "-2^63": -(2**63), "2^63": 2**63, "numpy": np.int64(5),
        "True": True, "1.0": 1.0, "1.5": 1.5, "NaN": math.nan, "text": "1",
    },
    "float": {"None": None, "NaN": math.nan, "-0.0": -0.0, "inf": math.inf, "0.1": 0.1, "1e300": 1e300, "1": 1},
    "double": {
        "None": None, "NaN": math.nan, "-0.0": -0.0, "inf": math.inf, "-inf": -math.inf, "1": 1, "2^53+1": 2**53 + 1,
        "numpy": np.float64(1.5), "float32": np.float32(0.1), "text": "1", "decimal": Decimal("1.5"),
    },
    "decimal(38,0)": {
        "None": None, "largest": Decimal(10**38 - 1), "too large": Decimal(10**38), "1": 1, "1.5": 1.5,
        "NaN": Decimal("NaN"),
    },
    "decimal(10,2)": {"None": None, "1.5": Decimal("1.5"), "1.005": Decimal("1.005"), "10^8": Decimal(10**8)},
    "string": {"None": None, "empty": "", "é": "é\0\U0001f600", "long": LONG_TEXT, "surrogate": "\ud800", "5": 5},
    "binary": {"None": None, "empty": b"", "bytes": b"\x00\xff", "bytearray": bytearray(b"x"), "text": "x"},
    "date": {
        "None": None, "first": date.min, "last": date.max, "NaT": pd.NaT, "numpy": np.datetime64("2024-02-29"),
        "pandas": pd.Timestamp("2024-02-29"), "datetime": NOON, "aware": NOON.replace(hour=1, tzinfo=EAST), "5": 5,
        "text": "2024-02-29",
    },
    "timestamp": {
        "None": None, "utc": NOON.replace(tzinfo=UTC), "offset": NOON.replace(tzinfo=EAST), "naive": NOON,
        "fold 0": datetime(2024, 11, 3, 1, 30), "fold 1": datetime(2024, 11, 3, 1, 30, fold=1),  # noqa: DTZ001
        "gap": datetime(2024, 3, 10, 2, 30), "session's fold": datetime(2024, 10, 27, 2, 30),  # noqa: DTZ001
        "session's gap": datetime(2024, 3, 31, 2, 30), "NaT": pd.NaT, "numpy": np.datetime64("2024-07-01T12"),  # noqa: DTZ001
        "pandas": pd.Timestamp("2024-07-01 12:00"), "pandas utc": pd.Timestamp("2024-07-01 12:00", tz="UTC"),
        "first": datetime.min.replace(tzinfo=UTC), "last": datetime.max.replace(tzinfo=UTC), "5": 5,
        "date": date(2024, 7, 1), "text": "2024-07-01",
    },
    "timestamp_ntz": {
        "None": None, "naive": NOON, "aware": NOON.replace(tzinfo=EAST), "fold": NOON.replace(fold=1), "NaT": pd.NaT,
        "pandas": pd.Timestamp("2024-07-01 12:00"), "numpy": np.datetime64("2024-07-01T12"),
        "first": datetime.min, "last": datetime.max, "5": 5,  # noqa: DTZ901
    },
}  # fmt: skip
"""By type and name: values that functions give."""
PLACES: dict[str, tuple[Callable[[DataType], DataType], Callable[[Any], Any]]] = {
    "column": (lambda kind: kind, lambda value: value),
    "struct": (lambda kind: StructType([StructField("x", kind)]), lambda value: {"x": value}),
    "array": (ArrayType, lambda value: [value, None]),
    "map key": (lambda kind: MapType(kind, IntegerType()), lambda value: {value: 1}),
    "map value": (lambda kind: MapType(StringType(), kind), lambda value: {"a": value}),
}
COLUMNS = [(kind, place) for kind in TYPES for place in PLACES]
NAMES = {cell: f"c{number}" for number, cell in enumerate(COLUMNS)}
COLUMN_TYPES = {NAMES[kind, place]: PLACES[place][0](TYPES[kind]) for kind, place in COLUMNS}
SCHEMA = StructType([StructField(name, column) for name, column in COLUMN_TYPES.items()])
KEYED = ["boolean", "bigint", "decimal(10,2)", "string", "binary", "date", "timestamp", "timestamp_ntz"]
KEYS = [f"k{number}" for number in range(len(KEYED))]
INPUT = StructType(
    [
        *[StructField(key, TYPES[kind]) for key, kind in zip(KEYS, KEYED, strict=True)],
        StructField("s", StructType([StructField(k, TYPES[t]) for k, t in zip(KEYS, KEYED, strict=True)])),
        *SCHEMA.fields,
    ]
)
OUTPUT = StructType([StructField("report", StringType()), StructField("row", IntegerType()), *SCHEMA.fields])
Accepts = Callable[[StructType, Any], None]
"""Raises if an engine does not take a value of a column, given as {name: value}."""


def input_table() -> pa.Table:
    """A row for each number of a value; all of one key but for the last, whose key is null where it may be."""
    rows: list[dict[str, Any]] = []
    for number in range(max(map(len, INPUTS.values())) + 1):
        keys = {key: INPUTS[kind][0] for key, kind in zip(KEYS, KEYED, strict=True)}
        row: dict[str, Any] = {**keys, "s": keys}
        for kind, place in COLUMNS:
            values = INPUTS[kind]
            if number < len(values):
                row[NAMES[kind, place]] = _arrow_form(place, PLACES[place][1](values[number]))
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(INPUT, timezone="UTC"))


def _arrow_form(place: str, value: Any) -> Any:
    return list(value.items()) if place.startswith("map") else value


def told(value: Any) -> str:
    """A value and its type, shortened."""
    text = f"{type(value).__name__} {value!r} {value.tolist()!r}" if isinstance(value, np.ndarray) else (
        f"{type(value).__name__} {value!r}"
    )  # fmt: skip
    return text if len(text) < 300 else f"{text[:20]}... {len(text)}"


def given(
    number: int, accepts: Accepts, report: dict[str, str], make_row: Callable[..., Any], *, plain: bool = False
) -> dict[str, Any]:
    """One row of output: the value of that number of each column that the engine takes; the others are reported.

    `plain`: Only columns that are not nested, whose DataFrames have dtypes of their own.
    """
    row: dict[str, Any] = {}
    direction = "typed" if plain else "out"
    for kind, place in COLUMNS:
        named = list(OUTPUTS[kind].items())
        if number >= len(named) or (plain and place != "column"):
            continue
        label, value = named[number]
        column = NAMES[kind, place]
        try:
            wrapped = {column: PLACES[place][1](value)}
            made = make_row(wrapped)
        except (TypeError, UnicodeEncodeError):  # Python and pandas have no such value themselves
            continue
        try:
            accepts(StructType([SCHEMA[column]]), made)
        except Exception as error:  # noqa: BLE001  what an engine raises
            report[f"{direction}|{kind}|{place}|{label}"] = f"refused {type(error).__name__}: {error}"
        else:
            row.update(wrapped)
    return row


def told_key(direction: str, key: Any) -> dict[str, str]:
    """The parts of a key, as the function got them."""
    kinds = [*KEYED, "struct"]
    return {f"{direction}|{kind}|column|key": told(value) for kind, value in zip(kinds, key, strict=True)}


ROWS = max(map(len, OUTPUTS.values()))
TYPED = 100
"""Numbers of rows from which DataFrames have dtypes of their own."""


class OnRows(StatefulProcessor):
    """Tells what comes in, what state gives back, and yields everything."""

    def __init__(self, accepts: Accepts, keeps: Callable[[DataType, Any], None]) -> None:
        self.accepts = accepts
        self.keeps = keeps

    def init(self, handle: StatefulProcessorHandle) -> None:
        warnings.simplefilter("ignore")
        self.handle = handle
        self.value = handle.getValueState("value", SCHEMA)
        self.keys = StructType([StructField(NAMES[k, "column"], TYPES[k]) for k in TYPES])
        self.map = handle.getMapState("map", self.keys, "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        report = told_key("key", key)
        for number, row in enumerate(rows):
            for cell, name in NAMES.items():
                report["in|" + "|".join(cell) + f"|{number}"] = told(row[name])
        self.in_state(report)
        for number in range(ROWS):
            row = given(number, self.accepts, report, lambda named: Row(**named))
            yield Row(row=number, report=None, **row)
        self.handle.registerTimer(1)
        yield Row(report=repr(report))

    def in_state(self, report: dict[str, str]) -> None:
        for number in range(ROWS):
            held: dict[str, tuple[int, Any]] = {}
            for position, (kind, place) in enumerate(COLUMNS):
                for label, value in list(OUTPUTS[kind].items())[number : number + 1]:
                    cell = f"state|{kind}|{place}|{label}"
                    try:
                        wrapped = PLACES[place][1](value)
                    except TypeError:  # Python has no such key
                        continue
                    try:
                        self.keeps(COLUMN_TYPES[NAMES[kind, place]], wrapped)
                        held[cell] = position, wrapped
                    except Exception as error:  # noqa: BLE001
                        report[cell] = f"refused {type(error).__name__}: {error}"
            report |= self.kept(held)
        for position, kind in enumerate(TYPES):
            for label, value in OUTPUTS[kind].items():
                cell = f"map state|{kind}|column|{label}"
                try:
                    self.map.clear()
                    self.keeps(TYPES[kind], value)
                    self.map.updateValue((*[None] * position, value, *[None] * (len(TYPES) - position - 1)), (1,))
                    report[cell] = told([key[position] for key, _ in self.map.iterator()])
                except Exception as error:  # noqa: BLE001
                    report[cell] = f"refused {type(error).__name__}: {error}"

    def kept(self, held: dict[str, tuple[int, Any]]) -> dict[str, str]:
        """The values at these positions, as the state gives them back: all at once, as each call is a message."""
        at = dict(held.values())
        try:
            self.value.update(tuple([at.get(position) for position in range(len(COLUMNS))]))
            back = self.value.get()
        except Exception as error:  # noqa: BLE001
            if len(held) == 1:
                return dict.fromkeys(held, f"refused {type(error).__name__}: {error}")
            return {c: text for cell, one in held.items() for c, text in self.kept({cell: one}).items()}
        return {cell: told(back[position]) for cell, (position, _) in held.items()}

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(report=repr(told_key("timer", key)))


class OnFrames(StatefulProcessor):
    """As `OnRows`, with DataFrames."""

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts

    def init(self, handle: StatefulProcessorHandle) -> None:
        warnings.simplefilter("ignore")
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        report = told_key("key", key)
        for frame in rows:
            for cell, name in NAMES.items():
                report["in|" + "|".join(cell) + "|dtype"] = str(frame[name].dtype)
                for number, value in enumerate(frame[name]):
                    report["in|" + "|".join(cell) + f"|{number}"] = told(value)
        for number in range(ROWS):
            row = given(number, self.accepts, report, frame_of)
            yield frame_of({"report": None, "row": number, **{name: row.get(name) for name in NAMES.values()}})
            row = given(number, self.accepts, report, typed_frame_of, plain=True)
            yield typed_frame_of({"report": None, "row": TYPED + number, **{n: row.get(n) for n in NAMES.values()}})
        yield frame_of({"report": repr(report), "row": None, **dict.fromkeys(NAMES.values())})


def frame_of(row: dict[str, Any]) -> pd.DataFrame:
    """A DataFrame of one row whose values are the very objects."""
    return pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in row.items()})


def typed_frame_of(row: dict[str, Any]) -> pd.DataFrame:
    """A DataFrame of one row with the dtypes that pandas chooses."""
    return pd.DataFrame({name: [value] for name, value in row.items()})


def spark_takes_row(schema: StructType, row: Any) -> None:
    """Spark's own conversion of rows, as its worker calls it."""
    pa.RecordBatch.from_pylist([row.asDict(True)], schema=to_arrow_schema(schema, timezone="UTC"))


def spark_takes_frame(schema: StructType, frame: Any) -> None:
    """Spark's own conversion of DataFrames, as its worker calls it."""
    from pyspark.sql.conversion import PandasToArrowConversion

    output = StructType([StructField("_0", schema)])
    PandasToArrowConversion.convert([frame], output, timezone=SESSION, arrow_cast=True, assign_cols_by_name=True)


def spark_keeps(kind: DataType, value: Any) -> None:
    """Values that are of a type on Spark. Others its states write as null, or end the query with, in the JVM."""
    _make_type_verifier(kind)(_normalize_state_value(value))
    digits = {str(DecimalType(38, 0)): 38, str(DecimalType(10, 2)): 8}
    for leaf in leaves(value):
        if isinstance(leaf, str):
            leaf.encode()
        elif isinstance(leaf, Decimal):
            limit = next(count for name, count in digits.items() if name in str(kind))
            if not leaf.is_finite() or leaf.adjusted() >= limit:
                raise ValueError(f"{leaf} has too many digits for {kind}")


def leaves(value: Any) -> Iterator[Any]:
    """The values within a value."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from leaves(key)
            yield from leaves(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from leaves(held)
    else:
        yield value


def varvite_takes_row(schema: StructType, row: Any) -> None:
    """varvite's conversion of rows, as `ProcessorFunction` and the runner make it."""
    from varvite.spark_integration.elements.arrow_rows import RowWriter
    from varvite.spark_integration.elements.row_values import value_writer

    write = value_writer(schema, lambda naive: naive.replace(tzinfo=UTC))
    named = row.asDict(True)
    RowWriter(to_arrow_schema(schema, timezone="UTC"), "op").columns([named if write is None else write(named)])


def varvite_takes_frame(schema: StructType, frame: Any) -> None:
    """varvite's conversion of DataFrames."""
    from varvite.spark_integration.elements.arrow_rows import RowWriter
    from varvite.spark_integration.operators.processors.pandas_rows import PandasRows

    rows = list(PandasRows(schema, SESSION).output_rows(frame))
    RowWriter(to_arrow_schema(schema, timezone="UTC"), "op").columns(rows)


def varvite_keeps(kind: DataType, value: Any) -> None:
    """varvite's states refuse what they do not keep."""
