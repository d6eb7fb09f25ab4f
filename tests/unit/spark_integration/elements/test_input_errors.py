"""The error of rows that cannot be read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.storage.errors import InvalidRequestError


def error_of(batch: pa.RecordBatch, read: Any, columns: list[str] | None = None) -> str:
    with pytest.raises(UnreadableInputError) as raised, reading(batch, columns or batch.schema.names, read):
        read(batch)
    assert isinstance(raised.value.cause, InvalidRequestError)
    return str(raised.value.cause)


def test_the_first_bad_value_is_found_among_many_and_shown_escaped() -> None:
    texts = [f"{i}" for i in range(1000)]
    texts[617] = "\x1b]0;title"
    batch = pa.record_batch({"n": list(range(1000)), "t": texts})
    calls: list[int] = []

    def read(rows: pa.RecordBatch) -> list[int]:
        calls.append(rows.num_rows)
        return [int(text) for text in rows.column("t").to_pylist() if text is not None]

    message = error_of(batch, read)
    assert message.startswith("column 't' of type string holds '\\x1b]0;title', which cannot be read (ValueError")
    assert len(calls) < 20, "by halves, not one by one"


def test_a_long_value_is_cut() -> None:
    batch = pa.record_batch({"t": ["x" * 5000]})
    assert len(error_of(batch, lambda rows: [int(t) for t in rows.column(0).to_pylist() if t])) < 400


def test_rows_that_no_column_alone_breaks_are_the_users_error_too() -> None:
    batch = pa.record_batch({"a": [1], "b": [2]})

    def read(rows: pa.RecordBatch) -> None:
        if all(column.null_count == 0 for column in rows.columns):
            raise TypeError("both")

    assert "columns ['a', 'b'] cannot be read (TypeError: both)" in error_of(batch, read)


def test_doubled_names_and_unknown_time_zones_are_said() -> None:
    doubled = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert "several columns named ['a']" in error_of(doubled, lambda rows: rows.column("a"))
    for zone in ("PST", "GMT+08:00"):
        at = pa.array([1], pa.timestamp("us", tz=zone))
        message = error_of(pa.record_batch({"at": at}), lambda rows: rows.column("at").to_pylist())
        assert f"time zone {zone!r} is none that Python knows: set spark.sql.session.timeZone" in message


def test_an_error_of_ours_stays_as_it_is() -> None:
    def read(rows: pa.RecordBatch) -> None:
        raise InvalidRequestError("as it is")

    assert error_of(pa.record_batch({"a": [1]}), read) == "as it is"
