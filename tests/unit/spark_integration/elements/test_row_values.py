"""State of rows with timestamps: they come back as they came, from windows and from a reduce."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.window_job import Element, WindowJob, window_operator
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.arrow_rows import row_class
from varvite.spark_integration.elements.row_values import RowValues, row_values
from varvite.spark_integration.elements.types import RowElements, TypedElements
from varvite.spark_integration.functions.keyed import OperatorRuntimeContext
from varvite.spark_integration.functions.keyed_operations import KeyedReduce
from varvite.spark_integration.operators.windows.assigners import EventTimeSessionWindows, SlidingEventTimeWindows
from varvite.spark_integration.operators.windows.contents import ListedContents, ReducedContents
from varvite.storage.errors import InvalidRequestError


def rows_of(**columns: Any) -> RowElements:
    return RowElements(StructType([StructField(name, kind) for name, kind in columns.items()]))


ELEMENTS = rows_of(at=TimestampType(), n=LongType(), seen=ArrayType(TimestampType()))


def row(number: int) -> Row:
    at = datetime.fromtimestamp(number, tz=UTC).astimezone().replace(tzinfo=None)
    return tuple.__new__(row_class(["at", "n", "seen"]), (at, number, [at, None]))


def latest(one: Any, other: Any) -> Any:
    assert type(one).__name__ == type(other).__name__ == "Row"
    return {"at": max(one.at, other.at), "n": one.n + other["n"], "seen": one.seen}


@pytest.mark.parametrize("assigner", [SlidingEventTimeWindows.of(20, 10), EventTimeSessionWindows.with_gap(10)])
def test_windows_of_rows(assigner: Any, tmp_path: Path) -> None:
    job = KeyedJob("hashmap", "on", tmp_path)
    windows = WindowJob(job, window_operator(assigner, ListedContents(ELEMENTS.state_type, ELEMENTS)))
    elements = [Element("a", row(1), 10), Element("a", row(2), 19)]
    windows.batch(elements)
    assert windows.batch(watermark_ms=28)[-2:] == [row(1), row(2)]
    job.close()
    (tmp_path / "reduced").mkdir()
    job = KeyedJob("hashmap", "on", tmp_path / "reduced")
    windows = WindowJob(job, window_operator(assigner, ReducedContents(latest, ELEMENTS.state_type, ELEMENTS)))
    windows.batch([*elements, Element("a", row(5), 17)])
    (reduced,) = windows.batch(watermark_ms=28)[-1:]
    assert (reduced.at, reduced.n, reduced.seen) == (row(5).at, 8, row(1).seen)
    job.close()


def test_a_reduce_of_rows(tmp_path: Path) -> None:
    job = KeyedJob("hashmap", "on", tmp_path)
    function = KeyedReduce(latest, ELEMENTS)
    function.open(OperatorRuntimeContext(job.backend, "reduce", 0, 1, 8))
    job.set_key("a")
    context: Any = None
    assert list(function.process_element(row(1), context)) == [row(1)]
    (reduced,) = function.process_element(row(2), context)
    assert reduced == {"at": row(2).at, "n": 3, "seen": row(1).seen}
    job.close()


def test_rows_come_out_of_state_as_rows_of_the_stream() -> None:
    """Without timestamps they came out as rows of another class, without `asDict`, and with other rules for `in`."""
    assert row_values(None) is None
    assert row_values(TypedElements(as_type(Types.INSTANT()))) is None
    elements = rows_of(n=LongType(), s=StructType([StructField("x", LongType())]), clock=TimestampNTZType())
    values = row_values(elements)
    assert values is not None
    for given in (Row(n=1, s=Row(x=2), clock=None), (1, (2,), None), {"n": 1, "s": {"x": 2}, "clock": None}):
        kept = values.outward(elements.state_type.thaw(elements.state_type.freeze(values.inward(given))))
        assert kept.asDict(recursive=True) == {"n": 1, "s": {"x": 2}, "clock": None}
        assert ("n" in kept, "x" in kept.s, 1 in kept) == (True, True, False)
    values = row_values(ELEMENTS)
    assert values is not None
    with pytest.raises(InvalidRequestError):
        values.inward((1, 2))


def test_an_unknown_column_of_a_dict_is_refused() -> None:
    """Found as nulls in a state."""
    rows = RowValues(RowElements(StructType([StructField("k", StringType()), StructField("at", TimestampType())])))
    assert rows.inward({"k": "a"}) == ("a", None), "what is missing is null"
    with pytest.raises(InvalidRequestError, match=r"no value for \['kk'\]"):
        rows.inward({"kk": "a"})
