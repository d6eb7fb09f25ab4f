"""DataFrames that Spark's functions get and yield: the same values and dtypes as on Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from varvite.spark_integration.operators.processors.pandas_rows import to_frame

BIG = 2**53 + 1
ID = pa.struct([("id", pa.int64())])
ZONED = pa.timestamp("us", tz="America/New_York")
TWICE = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "plain": (pa.int64(), [1, None]),
    "small": (pa.int8(), [1, 2]),
    "struct": (ID, [{"id": BIG}, {"id": None}]),
    "null struct": (ID, [{"id": BIG}, None]),
    "array": (pa.list_(pa.int64()), [[BIG, None], [BIG]]),
    "map": (pa.map_(pa.int64(), pa.int64()), [[(BIG, BIG), (1, None)], []]),
    "deep": (pa.map_(pa.string(), pa.list_(ID)), [[("a", [{"id": BIG}, {"id": None}, None])], None]),
    "bool": (pa.struct([("b", pa.bool_())]), [{"b": True}, {"b": None}]),
    "double": (pa.list_(pa.float64()), [[1.5, None, float("nan"), -0.0], None]),
    "date": (pa.struct([("d", pa.date32())]), [{"d": date(9999, 12, 31)}, {"d": None}]),
    "decimal": (pa.list_(pa.decimal128(38, 0)), [[Decimal(10**38 - 1), None], []]),
    "text": (pa.list_(pa.string()), [["", None], ["é"]]),
    "timestamp": (ZONED, TWICE),
    "timestamps": (pa.list_(ZONED), [[*TWICE, None], []]),
    "naive": (pa.struct([("t", pa.timestamp("us"))]), [{"t": datetime(2024, 1, 1)}, {"t": None}]),  # noqa: DTZ001
}


def batch_of(name: str) -> pa.RecordBatch:
    kind, values = COLUMNS[name]
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["c"])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_becomes_what_spark_makes_of_it(name: str) -> None:
    """One null in a batch made floats of all integers within structs, arrays and maps, which lose digits."""
    transformer: Any = pytest.importorskip("pyspark.sql.conversion").ArrowBatchTransformer
    expected = transformer.to_pandas(batch_of(name), timezone="America/New_York")[0]
    received = to_frame(batch_of(name))["c"]
    assert (received.dtype, repr(received.tolist())) == (expected.dtype, repr(expected.tolist()))


def test_integers_within_other_values_keep_their_digits_beside_nulls() -> None:
    assert to_frame(batch_of("struct"))["c"][0] == {"id": BIG}
    assert to_frame(batch_of("array"))["c"][0].tolist() == [BIG, None]
    assert to_frame(batch_of("map"))["c"][0] == {BIG: BIG, 1: None}
    assert to_frame(batch_of("deep"))["c"][0]["a"].tolist() == [{"id": BIG}, {"id": None}, None]
