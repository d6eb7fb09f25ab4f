"""Elements of every type come back from the columns in which Spark carries them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from tests.jobs.strategies import any_types, typed_columns
from tests.property.state.test_types import plain
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.wire import WireType
from varvite.spark_integration.elements.columns import value_column
from varvite.spark_integration.elements.types import TypedElements


def kept(kind: WireType, values: list[Any]) -> list[str]:
    """The values as state would give them back, comparable."""
    return [str(plain(None if value is None else kind.thaw(kind.freeze(value)))) for value in values]


@given(typed_columns(any_types()), st.integers(0, 2))
def test_values_come_back_from_a_column(typed: tuple[WireType, list[Any]], skipped: int) -> None:
    kind, values = typed
    codec = value_column(kind)
    column = codec.encode(values)
    assert column.type == codec.arrow_type
    expected = kept(kind, values)
    assert [str(plain(value)) for value in codec.decode(column)] == expected
    assert [str(plain(value)) for value in codec.decode(column.slice(skipped))] == expected[skipped:]


@given(typed_columns(any_types()))
def test_elements_come_back_from_their_columns_and_a_file(typed: tuple[WireType, list[Any]]) -> None:
    kind, values = typed
    if isinstance(kind, CompositeType):
        values = [value for value in values if value is not None]
        if len({name.lower() for name in kind.names}) < len(kind.names):
            return  # Spark takes such columns for the same, and `elements_of` refuses them
    elements = pickle.loads(pickle.dumps(TypedElements(kind)))
    assert elements == TypedElements(kind)
    table = pa.table(elements.writer("").columns(values), names=elements.schema.names)
    for field, of_spark in zip(table.schema, elements.schema.fields, strict=True):
        assert to_arrow_type(of_spark.dataType, timezone="UTC") is not None, f"Spark has no column for {field}"
    file = io.BytesIO()
    pq.write_table(table, file)
    batches = pq.read_table(file).to_batches()
    found = [element for batch in batches for element in elements.reader(batch.schema).rows(batch)]
    assert [str(plain(element)) for element in found] == kept(kind, values)
