"""Times where clocks change and at the ends of the calendar: read, written, kept, and given out again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.arrow_rows import RowReader, RowWriter
from varvite.spark_integration.elements.clock_times import instant_of_frame, local_instant, local_time
from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.spark_integration.elements.row_values import ColumnValues
from varvite.spark_integration.operators.processors.pandas_rows import PandasRows, to_frame
from varvite.storage.errors import InvalidRequestError

MOMENT = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TWICE = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]
"""01:30 in New York, before and after the change."""
EARLY = [datetime(1950, 9, 24, hour, 30, 0, 1, tzinfo=UTC) for hour in (5, 6)]
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "plain": (MOMENT, lambda t: t),
    "array": (pa.list_(MOMENT), lambda t: [t, None]),
    "struct": (pa.struct([("t", MOMENT)]), lambda t: {"t": t}),
    "map": (pa.map_(MOMENT, MOMENT), lambda t: [(t, t)]),
}


@pytest.fixture(params=["America/New_York", "UTC", "Asia/Tokyo", "Pacific/Apia"])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from zone_of(request.param, monkeypatch)


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from zone_of("America/New_York", monkeypatch)


def zone_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", name)
    time.tzset()
    yield name
    monkeypatch.undo()
    time.tzset()


def read(kind: pa.DataType, *values: Any) -> list[Any]:
    schema = pa.schema([("c", kind)])
    return [row[0] for row in RowReader(schema, ["c"]).rows(pa.record_batch([pa.array(values, kind)], schema))]


def written(kind: pa.DataType, *values: Any) -> pa.Array:
    return RowWriter(pa.schema([("c", kind)]), "op").columns([(value,) for value in values])[0]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moments", [TWICE, EARLY], ids=["2024", "1950"])
def test_a_row_that_is_passed_on_is_the_same_instant(kind: str, moments: list[datetime]) -> None:
    """The second 01:30 of the night when summer ends came out an hour early."""
    arrow_type, make = KINDS[kind]
    values = [make(moment) for moment in moments]
    assert written(arrow_type, *read(arrow_type, *values)).to_pylist() == values


@pytest.mark.usefixtures("new_york")
def test_clocks_are_those_that_python_reads() -> None:
    for moment in (*TWICE, EPOCH, datetime(2024, 3, 10, 7, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)):
        expected = datetime.fromtimestamp(moment.timestamp())  # noqa: DTZ006
        received = local_time((moment - EPOCH) // timedelta(microseconds=1))
        assert (received, received.fold) == (expected, expected.fold)
        assert received.timestamp() == moment.timestamp()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize("kind", ["t timestamp", "a array<timestamp>", "m map<int,timestamp>", "s struct<t:timestamp>"])
def test_a_state_keeps_the_instant(kind: str) -> None:
    values = ColumnValues(kind, "a state")
    made: dict[str, Any] = {"t": lambda t: t, "a": lambda t: [t], "m": lambda t: {1: t}, "s": lambda t: Row(t=t)}
    for moment in TWICE:
        given = (made[kind[0]](local_time((moment - EPOCH) // timedelta(microseconds=1))),)
        kept = values.outward(values.type.thaw(values.type.freeze(values.inward(given))))
        assert repr(kept) == repr(given)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["n timestamp_ntz", "a array<timestamp_ntz>", "m map<timestamp_ntz,int>"])
def test_an_aware_datetime_leaves_its_clock_in_a_state_without_zone(kind: str) -> None:
    """It was moved to the local zone; Spark keeps what its clock shows."""
    made: dict[str, Any] = {"n": lambda t: t, "a": lambda t: [t], "m": lambda t: {t: 1}}
    values = ColumnValues(kind, "a state")
    naive = datetime(2024, 7, 1, 12)  # noqa: DTZ001
    assert values.outward(values.inward((made[kind[0]](naive.replace(tzinfo=UTC)),))) == (made[kind[0]](naive),)


@pytest.mark.parametrize("missing", [pd.NaT, np.datetime64("NaT")], ids=["pandas", "numpy"])
@pytest.mark.parametrize("leaf", [pa.date32(), MOMENT, pa.timestamp("us")], ids=["date", "timestamp", "ntz"])
def test_not_a_time_is_null_at_any_depth(missing: Any, leaf: pa.DataType) -> None:
    """NaT in a column of dates became the first day of the year 1."""
    assert written(leaf, missing, None).to_pylist() == [None, None]
    assert written(pa.list_(leaf), [missing]).to_pylist() == [[None]]
    assert written(pa.struct([("c", leaf)]), (missing,)).to_pylist() == [{"c": None}]
    assert written(pa.map_(pa.int32(), leaf), {1: missing}).to_pylist() == [[(1, None)]]
    assert written(pa.time64("us"), missing).to_pylist() == written(pa.duration("us"), missing).to_pylist() == [None]


@pytest.mark.parametrize("kind", ["d date", "t timestamp", "n timestamp_ntz", "a array<date>", "m map<int,timestamp>"])
def test_not_a_time_is_none_in_a_state_of_spark(kind: str) -> None:
    """It was a recursion without end."""
    made: dict[str, Any] = {"a": [pd.NaT], "m": {1: pd.NaT}}
    expected: dict[str, Any] = {"a": [None], "m": {1: None}}
    values = ColumnValues(kind, "a state")
    assert values.outward(values.inward((made.get(kind[0], pd.NaT),))) == (expected.get(kind[0]),)


@pytest.mark.parametrize("kind", [Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.INSTANT()])
def test_not_a_time_is_refused_as_such_in_a_state_of_a_type(kind: Any) -> None:
    with pytest.raises(InvalidRequestError, match="give None for what is missing"):
        kind.freeze(pd.NaT)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.duration("us"), MOMENT], ids=str)
@pytest.mark.parametrize("value", [1, 1.0, True, "2024-01-01"])
def test_numbers_are_no_times(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="output column 0 'c' is declared"):
        written(kind, value)


def test_the_first_day_and_the_last_are_written_or_refused(anywhere: str) -> None:
    """In UTC the first day was refused; where UTC's clock shows another year it still is."""
    for naive in (datetime.min, datetime.min.replace(hour=23), datetime.max):  # noqa: DTZ901
        try:
            instant = local_instant(naive)
        except OverflowError:
            assert anywhere != "UTC"
            with pytest.raises(InvalidRequestError, match="output column 0 'c' is declared"):
                written(MOMENT, naive)
        else:
            assert instant.astimezone().replace(tzinfo=None) == naive
            assert written(MOMENT, naive).to_pylist() == [instant]
    for day in (date.min, date.max):
        assert read(pa.date32(), *written(pa.date32(), day).to_pylist()) == [day]


def read_within(reader: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> Any:
    """As a worker reads."""
    with reading(batch, batch.schema.names, reader):
        return reader(batch)


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.date32(), 2932897, "10000-01-01"),
        (MOMENT, 253402318800_000_000, "253402318800000000"),
        (MOMENT, -62135596800_000_000, r"datetime\(1, 1, 1, 0, 0, tz"),
        (pa.timestamp("us"), 253402300800_000_000, "253402300800000000"),
    ],
    ids=["date", "last timestamp", "first timestamp", "ntz"],
)
def test_what_python_cannot_hold_is_an_error_with_its_column(kind: pa.DataType, value: int, shown: str) -> None:
    """It was a bare `OverflowError`, which was tried again for ever."""
    whole = pa.array([0, value, None], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    schema = pa.schema([("c", kind)])
    with pytest.raises(UnreadableInputError, match=f"column 'c' of type .*{shown}"):
        read_within(RowReader(schema, ["c"]).rows, pa.record_batch([whole], schema))
    nested = pa.ListArray.from_arrays([0, 1, 3], whole)
    schema = pa.schema([("n", nested.type)])
    with pytest.raises(UnreadableInputError, match="column 'n' of type list"):
        read_within(RowReader(schema, ["n"]).rows, pa.record_batch([nested], schema))


@pytest.mark.parametrize(("kind", "value"), [("sql_date", 2932897), ("sql_timestamp", 253402300800_000_000)])
def test_a_key_that_python_cannot_hold_is_an_error_too(kind: str, value: int) -> None:
    """numpy made a number of it, which had no day."""
    key_type: Any = {"sql_date": Types.SQL_DATE(), "sql_timestamp": Types.SQL_TIMESTAMP()}[kind]
    plain = pa.int32() if kind == "sql_date" else pa.int64()
    column = pa.array([value, None, 0], plain).cast(key_type.arrow_type)
    batch = pa.record_batch([column], ["k"])
    with pytest.raises(UnreadableInputError, match=r"column 'k' of type .* holds .*10000"):
        read_within(lambda rows: key_type.from_arrow(rows.column(0)), batch)
    assert key_type.from_arrow(column.slice(1))[1].year == 1970


@pytest.mark.parametrize("moment", [datetime(1600, 1, 1, tzinfo=UTC), datetime(2300, 1, 1, tzinfo=UTC)])
def test_what_pandas_cannot_hold_is_an_error_with_its_column(moment: datetime) -> None:
    for kind, value in ((MOMENT, moment), (pa.timestamp("us"), moment.replace(tzinfo=None))):
        batch = pa.record_batch([pa.array([value], kind)], pa.schema([("c", kind)]))
        with pytest.raises(UnreadableInputError, match="column 'c' of type"):
            read_within(to_frame, batch)


def test_a_variant_is_sparks_own() -> None:
    """It was a row of two binaries."""
    from pyspark.sql.types import VariantType, VariantVal

    schema = to_arrow_schema(StructType([StructField("v", VariantType())]), timezone="UTC")
    value = VariantVal(b"\x0c\x01", b"\x01\x00\x00")
    column = RowWriter(schema, "op").columns([(value,), (None,)])[0]
    read_back = [row.v for row in RowReader(schema, ["v"]).rows(pa.record_batch([column], schema))]
    assert [(type(v), v and (v.value, v.metadata)) for v in read_back] == [
        (VariantVal, (value.value, value.metadata)),
        (type(None), None),
    ]


def frame_row(schema: str, value: Any, dtype: Any = None) -> Any:
    kind = schema_of(schema)
    rows = PandasRows(kind)
    rows.note_zone(pa.schema([("t", pa.timestamp("us", tz="America/New_York"))]))
    frame = pd.DataFrame({"c": pd.Series([value], dtype=dtype)})
    arrow = to_arrow_schema(kind, timezone="UTC")
    return RowWriter(arrow, "op").columns(list(rows.output_rows(frame)))[0].to_pylist()[0]


def schema_of(kind: str) -> StructType:
    from pyspark.sql import types as t

    kinds: dict[str, Any] = {
        "timestamp": t.TimestampType(),
        "timestamps": t.ArrayType(t.TimestampType()),
        "doubles": t.ArrayType(t.DoubleType()),
        "ints": t.MapType(t.StringType(), t.IntegerType()),
        "struct": t.StructType([t.StructField("d", t.DoubleType()), t.StructField("s", t.StringType())]),
    }
    return StructType([t.StructField("c", kinds[kind])])


def test_in_frames_an_hour_that_comes_twice_is_its_second_time_and_a_skipped_one_is_refused() -> None:
    """As Spark reads the naive timestamps of a DataFrame, which has no `fold`."""
    assert frame_row("timestamp", datetime(2024, 11, 3, 1, 30), "datetime64[ns]") == TWICE[1]  # noqa: DTZ001
    assert frame_row("timestamps", [datetime(2024, 11, 3, 1, 30)]) == [TWICE[1]]  # noqa: DTZ001
    assert frame_row("timestamp", datetime(2024, 7, 1, 12), "datetime64[ns]") == datetime(2024, 7, 1, 16, tzinfo=UTC)  # noqa: DTZ001
    with pytest.raises(InvalidRequestError, match="never show 2024-03-10 02:30"):
        frame_row("timestamp", datetime(2024, 3, 10, 2, 30), "datetime64[ns]")  # noqa: DTZ001


@pytest.mark.usefixtures("new_york")
def test_without_a_zone_frames_have_that_of_the_machine() -> None:
    assert instant_of_frame(None, datetime(2024, 11, 3, 1, 30)) == TWICE[1]  # noqa: DTZ001
    with pytest.raises(InvalidRequestError, match="the local time zone never show"):
        instant_of_frame(None, datetime(2024, 3, 10, 2, 30))  # noqa: DTZ001


def test_what_is_missing_within_values_of_a_frame_is_null() -> None:
    """As on Spark; NaN stayed in arrays and structs of doubles, and was an error among integers."""
    nan = float("nan")
    assert frame_row("doubles", [nan, 1.0, np.float64("nan")]) == [None, 1.0, None]
    assert frame_row("doubles", np.array([nan, 1.0])) == [None, 1.0]
    assert frame_row("ints", {"a": nan, "b": pd.NA, "c": 2}) == [("a", None), ("b", None), ("c", 2)]
    assert frame_row("struct", {"d": nan, "s": None}) == {"d": None, "s": None}
    assert frame_row("struct", (nan, "x")) == {"d": None, "s": "x"}
