"""The vectorised function behind `KeyedStream.aggregate`: a state row per key, an output row per key of a batch.

Its input are rows of the stream, or rows that `map_side_combine` combined, which have other columns. A batch may come
in several calls; each key has one output row, after the last call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from varvite.changelog.api.batch_keys import keys_of_batch
from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.types.columns import canonical_column
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.grouped_rows import GroupedRows
from varvite.spark_integration.functions.vectorized import EndsBatches, VectorizedProcessFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.operators.aggregation.aggregations import AggregateColumn


def partial_name(name: str, kind: str) -> str:
    """Name of the column with a partial result of an aggregation (see `map_side_combine`)."""
    return f"__varvite_{kind} {name}"


STATE_NAME: Final = "aggregates"
"""Name of the value state with the accumulators; an output column's own state has a dot in its name."""
arrow: Any = pa


class ColumnAggregates(VectorizedProcessFunction, EndsBatches):
    """Keeps aggregates per key.

    Args:
        key_columns: Names of the key columns.
        columns: The output columns.
    """

    def __init__(self, key_columns: Sequence[str], columns: Sequence[AggregateColumn]) -> None:
        self._key_columns = tuple(key_columns)
        self._columns = tuple(columns)
        fields = [field for column in columns for field in column.accumulator.fields]
        self._keys: list[BatchKeys] = []
        """The keys of the batch's calls until now."""
        self._fields: list[Any] = []
        """The fields that the last call put into the state."""
        self._type: Any = Types.ROW_NAMED([name for name, _ in fields], [kind for _, kind in fields])

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor(STATE_NAME, self._type))
        for column in self._columns:
            column.accumulator.open(runtime_context)

    def process_batch(self, batch: pa.RecordBatch, ctx: VectorizedProcessFunction.Context) -> None:
        keys = ctx.keys()
        state = self._state.get_many(keys)
        rows = GroupedRows(keys, state.is_valid())
        before: list[Any] = state.flatten()
        after: list[Any] = []
        first = self._columns[0]
        combined = any(partial_name(first.name, kind) in batch.schema.names for kind in first.accumulator.partials)
        for column in self._columns:
            count = len(column.accumulator.fields)
            state_before, before = before[:count], before[count:]
            if combined:
                partials = [batch.column(partial_name(column.name, kind)) for kind in column.accumulator.partials]
                after += column.accumulator.merge(rows, partials, state_before)
            else:
                after += column.accumulator.add(rows, self._input(batch, column), state_before)
        self._state.put_many(keys, arrow.StructArray.from_arrays(after, fields=list(self._type.arrow_type)))
        self._keys.append(keys)
        self._fields = after

    def end_batch(self) -> pa.RecordBatch | None:
        parts, self._keys = self._keys, []
        fields, self._fields = self._fields, []
        if not parts:
            return None
        if len(parts) == 1:
            return self._output(parts[0], fields)
        arrays, groups = [keys.array for keys in parts], [keys.key_group_array for keys in parts]
        keys = keys_of_batch(parts[0].key_type, pa.concat_arrays(arrays), np.concatenate(groups))
        return self._output(keys, self._state.get_many(keys).flatten())

    def _output(self, keys: BatchKeys, fields: list[Any]) -> pa.RecordBatch:
        outputs: list[Any] = [keys.array] if len(self._key_columns) == 1 else keys.array.flatten()
        for column in self._columns:
            count = len(column.accumulator.fields)
            outputs.append(column.accumulator.result(fields[:count]))
            fields = fields[count:]
        return arrow.RecordBatch.from_arrays(outputs, [*self._key_columns, *(c.name for c in self._columns)])

    @staticmethod
    def _input(batch: Any, column: AggregateColumn) -> Any:
        if column.column is None:
            return None
        values = batch.column(column.column)
        what = f"aggregation {column.name}"
        return values if column.input_type is None else canonical_column(column.input_type, values, what)
