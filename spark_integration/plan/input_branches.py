"""`BranchedPreparation`: the step before the first operator of unions and connected streams.

Each path from a source is an `InputBranch`: the source, the functions on the path, and the key. All branches run in one
`mapInArrow` over the rows of all sources side by side. A row goes through every branch of its source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from varvite.spark_integration.elements.side_by_side import ConnectedElements, split
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, KeyStep, Stamps, Step
from varvite.spark_integration.plan.preparation import (
    PreparationTask,
    applied,
    changes_elements,
    event_times,
    read_elements,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.preparation import StepFailure


_nulls: Any = pa.nulls


@dataclass(frozen=True, kw_only=True)
class InputBranch:
    """One path from a source."""

    source: int
    """Number of the source."""
    input: ElementType
    """Its elements."""
    output: ElementType
    """Output of the last step."""
    timing: tuple[Step, ...]
    """Steps up to the last that assigns timestamps: after them an element counts for the watermark."""
    steps: tuple[Step, ...]
    """Steps after `timing`."""
    key: KeyStep | None
    """The key function of a computed key."""
    key_columns: tuple[str, ...]
    """Else the output columns that make the key, if it goes into a column of its own. Empty: it is null."""
    event_time_from: str | None
    """Column of the source with its event time."""
    number: int | None
    """Number of its connected stream; None: streams are not connected."""


@dataclass(frozen=True, kw_only=True)
class BranchedPreparation:
    """The step on the rows of all sources before the first operator; picklable."""

    branches: tuple[InputBranch, ...]
    output: ElementType | ConnectedElements
    key_type: WireType | None
    """Type of the key column; None: there is none."""
    event_time_out: bool
    """Add a column with the event time."""
    broadcasts: dict[int, Any] = field(default_factory=dict, repr=False)
    """Broadcast variables that the functions refer to: pickled with this, Spark sends them along."""

    @property
    def output_schema(self) -> StructType:
        """Columns of the prepared rows."""
        fields = [StructField(f.name, f.dataType) for f in self.output.schema.fields]
        if self.event_time_out:
            fields.append(StructField(EVENT_TIME_COLUMN, LongType()))
        if self.key_type is not None:
            fields.append(StructField(KEY_COLUMN, from_arrow_type(self.key_type.arrow_type)))
        return StructType(fields)

    def apply(
        self,
        rows: DataFrame,
        place: ChainPlace,
        failures: Accumulator[list[StepFailure]],
        latest: Accumulator[dict[int, int]],
        *,
        is_whole: bool,
    ) -> DataFrame:
        """Apply the step as `Preparation.apply` does; each branch's largest event time is added to `latest`."""
        return applied(rows, PreparationTask(self, place, failures, latest, is_whole=is_whole), self.output_schema)

    def at(self, place: ChainPlace) -> BranchesRun:
        """All branches for one task."""
        return BranchesRun(self, place)


class BranchesRun:
    """The branches in one task."""

    def __init__(self, plan: BranchedPreparation, place: ChainPlace) -> None:
        self._schema: pa.Schema = to_arrow_schema(plan.output_schema, timezone="UTC")
        self._branches = [_BranchRun(plan, branch, place, self._schema) for branch in plan.branches]

    @property
    def latest(self) -> dict[int, int]:
        """The largest event time of each branch so far."""
        return {i: b.latest_ms for i, b in enumerate(self._branches) if b.latest_ms is not None}

    def open(self) -> None:
        """Load and open the functions. Raises `StepError`."""
        for branch in self._branches:
            branch.timing.open()
            branch.chain.open()

    def prepared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The prepared rows of a batch. Raises `StepError`, `InvalidRequestError`."""
        for source, rows in split(batch):
            for branch in self._branches:
                if branch.plan.source == source:
                    columns = branch.columns(rows)
                    cast = [
                        c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self._schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(cast, schema=self._schema)

    def close(self) -> None:
        """Close the functions. Raises `StepError`."""
        for branch in self._branches:
            branch.timing.close()
            branch.chain.close()


class _BranchRun:
    def __init__(self, whole: BranchedPreparation, plan: InputBranch, place: ChainPlace, schema: pa.Schema) -> None:
        self.plan = plan
        self.timing = FunctionChain(plan.timing, None, place)
        self.chain = FunctionChain(plan.steps, plan.key, place)
        self.latest_ms: int | None = None
        self._whole = whole
        self._types = schema.types
        self._changes = changes_elements((*plan.timing, *plan.steps))
        self._reads = bool(plan.timing or plan.steps or plan.key)

    def columns(self, batch: pa.RecordBatch) -> list[Any]:
        """The prepared columns of rows of the source."""
        plan, whole = self.plan, self._whole
        elements: list[Any] = []
        stamps = event_times(batch, plan.event_time_from)
        if self._reads:
            elements = read_elements(plan.input, batch)
            elements, stamps = self.timing.run(elements, stamps)
            self._update_latest(stamps)
            elements, stamps = self.chain.run(elements, stamps)
        else:
            self._update_latest(stamps)
        if self._changes:
            columns = plan.output.writer("").columns(elements)
        else:
            columns = [batch.column(name) for name in plan.output.schema.names]
        count = len(columns[0])
        key = self._key(columns, elements)
        if plan.number is not None and isinstance(whole.output, ConnectedElements):
            columns = whole.output.columns(plan.number, columns, self._types)
        if whole.event_time_out:
            columns.append(pa.array(stamps or [None] * count, pa.int64()))
        return [*columns, *key]

    def _update_latest(self, stamps: Stamps) -> None:
        self.latest_ms = max((t for t in (self.latest_ms, *(stamps or ())) if t is not None), default=None)

    def _key(self, columns: list[Any], elements: list[Any]) -> list[Any]:
        plan, key_type = self.plan, self._whole.key_type
        if key_type is None:
            return []
        if plan.key is not None:
            return [self.chain.keys(elements)]
        if not plan.key_columns:
            return [_nulls(len(columns[0]), key_type.arrow_type)]
        key = [columns[plan.output.schema.names.index(name)] for name in plan.key_columns]
        if len(key) == 1:
            return key
        fields: Any = list(key_type.arrow_type)  # type: ignore[call-overload]  a struct's type iterates over its fields
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(key, fields, strict=True)]
        return [pa.StructArray.from_arrays(cast, fields=fields)]
