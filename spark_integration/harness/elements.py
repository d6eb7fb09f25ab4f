"""Brings elements to the partitions of an operator under a harness, and reads its output.

The way in is a job's: the functions before the operator, the key, the key group, the partition. Only the hash differs
from Spark's, so a key may be in another key group than in a job.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.pandas.types import to_arrow_schema

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.key_wire import key_writer
from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, OUTPUT_COLUMN, rows_column
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_GROUP_COLUMN, SUMMARY_COLUMN
from varvite.spark_integration.plan.function_chain import ChainPlace
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.worker.runners.operator import KeyReader
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.harness.plan import HarnessPlan
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.plan.input_branches import BranchesRun
    from varvite.spark_integration.plan.preparation import PreparationRun

_compute: Any = pyarrow.compute


class HarnessInput:
    """Elements in, keyed batches for the partitions out."""

    def __init__(self, plan: HarnessPlan, request: OperatorRequest) -> None:
        self._plan = plan
        self._request = request
        self._key_type = parse_type_string(request.key_type)
        self._key_bytes = key_writer(self._key_type)
        config = plan.job.config
        self._place = ChainPlace(0, request.parallelism, request.max_parallelism, dict(config.job_parameters))
        self._run: PreparationRun | BranchesRun | None = None

    @property
    def latest_ms(self) -> Mapping[int, int]:
        """The largest event time in this batch of each way to the operator, if there are several."""
        return self._run.latest if self._run else {}

    def begin(self) -> None:
        """A batch begins: open the functions before the operator, anew as in every task. Raises `StepError`."""
        self.close()
        preparation = self._plan.job.preparation
        if preparation is not None:
            self._run = preparation.at(self._place)
            self._run.open()

    def close(self) -> None:
        """Close them. Raises `StepError`."""
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def place_of(self, key: Any) -> tuple[int, int, Any]:
        """(partition, key group, stored form) of a key. Raises `InvalidRequestError` if it is not of the key's type."""
        stored = None if key is None else self._key_type.freeze(key)
        key_group = self._key_group(stored)
        return self._partition(key_group), key_group, stored

    def batches(
        self, number: int, elements: Any, timestamps: Sequence[int | None] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(partition, batch) of these elements of an input.

        Args:
            number: Of the input.
            elements: A sequence of elements, or rows as an Arrow batch or table.
            timestamps: The event time of each; None: they have none.

        Raises:
            StepError: A function before the operator raised.
            InvalidRequestError: An element does not fit, or the event times do not.
        """
        batch = self._batch(number, elements, timestamps)
        try:
            for prepared in (batch,) if self._run is None else self._run.prepared(batch):
                yield from self._keyed(prepared)
        except UnreadableInputError as failed:
            raise failed.cause from failed.cause.__cause__

    def _batch(self, number: int, elements: Any, timestamps: Sequence[int | None] | None) -> pa.RecordBatch:
        plan = self._plan
        if not 0 <= number < len(plan.inputs):
            raise InvalidRequestError(f"there is no input {number}: the program has {len(plan.inputs)}, from 0")
        kind = plan.inputs[number]
        columns = _columns_of(kind, elements)
        names = list(kind.schema.names)
        if plan.takes_timestamps:
            columns.append(_times(timestamps, len(columns[0])))
            names.append(EVENT_TIME_COLUMN)
        elif timestamps is not None:
            raise InvalidRequestError("the program says where event times come from; give none with the elements")
        if not isinstance(plan.job.preparation, BranchedPreparation):
            return pa.RecordBatch.from_arrays(columns, names=names)
        rows = pa.StructArray.from_arrays(columns, names=names)
        numbers = pa.repeat(pa.scalar(number, pa.int32()), len(rows))
        return pa.RecordBatch.from_arrays([numbers, rows], names=[INPUT_COLUMN, rows_column(number)])

    def _keyed(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader = KeyReader(self._request, batch.schema)
        with reading(batch, self._request.key_columns, reader.keys):
            keys = reader.keys(batch)
        groups = [self._key_group(key) for key in keys]
        keyed: Any = batch.append_column(KEY_GROUP_COLUMN, pa.array(groups, pa.int32()))
        rows: dict[int, list[int]] = {}
        for i, key_group in enumerate(groups):
            rows.setdefault(self._partition(key_group), []).append(i)
        for partition, chosen in sorted(rows.items()):
            yield partition, keyed if len(rows) == 1 else keyed.take(pa.array(chosen, pa.int64()))

    def _key_group(self, stored: Any) -> int:
        parallelism, max_parallelism = self._request.parallelism, self._request.max_parallelism
        if self._plan.job.operators[0].by_partition:
            return key_range(stored, parallelism, max_parallelism)[0]
        return zlib.crc32(self._key_bytes(stored)) % max_parallelism

    def _partition(self, key_group: int) -> int:
        return key_group * self._request.parallelism // self._request.max_parallelism


def _columns_of(kind: ElementType, elements: Any) -> list[Any]:
    """The columns of elements."""
    if not isinstance(elements, (pa.RecordBatch, pa.Table)):
        return list(kind.writer("").columns(list(elements)))
    if not isinstance(kind, RowElements):
        raise InvalidRequestError("Arrow batches are rows: give the input columns, such as 'k string, v bigint'")
    schema = to_arrow_schema(kind.schema, timezone="UTC")
    missing = set(schema.names) - set(elements.schema.names)
    if missing:
        raise InvalidRequestError(f"the Arrow batch has no columns {sorted(missing)}; it has {elements.schema.names}")
    try:
        columns: dict[str, Any] = {f.name: elements.column(f.name) for f in schema}
        table = pa.table(columns).cast(schema).combine_chunks()
    except pa.ArrowException as error:
        raise InvalidRequestError(f"the Arrow batch does not fit {kind.schema.simpleString()}: {error}") from error
    return [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]


def _times(timestamps: Sequence[int | None] | None, count: int) -> Any:
    times = [None] * count if timestamps is None else list(timestamps)
    if len(times) != count:
        raise InvalidRequestError(f"there are {len(times)} event times for {count} elements")
    return pa.array(times, pa.int64())


class HarnessOutput:
    """Answer batches in, elements out."""

    def __init__(self, plan: HarnessPlan) -> None:
        self._elements = plan.elements
        self._sides = plan.sides

    def read(self, answer: pa.RecordBatch) -> tuple[list[Any], dict[str, list[Any]]]:
        """The elements of the main output, and those of each side output by its id."""
        rows: Any = answer.filter(_compute.is_null(answer.column(SUMMARY_COLUMN)))
        if not self._sides:
            return self._elements.reader(rows.schema).rows(rows), {}
        numbers = rows.column(OUTPUT_COLUMN)
        sides: dict[str, list[Any]] = {}
        for i, (tag, elements) in enumerate(self._sides.items()):
            side = rows.filter(_compute.equal(numbers, i)).column(rows_column(i))
            columns = pa.RecordBatch.from_struct_array(side)
            sides[tag] = elements.reader(columns.schema).rows(columns)
        main = rows.filter(_compute.is_null(numbers))
        return self._elements.reader(main.schema).rows(main), sides
