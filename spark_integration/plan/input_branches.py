"""`BranchedPreparation`: the step before an operator that reads several ways from sources.

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
    from collections.abc import Iterator, Sequence

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.preparation import StepFailure


_nulls: Any = pa.nulls


@dataclass(frozen=True, kw_only=True)
class BranchForm:
    """The form in which the rows of a branch come to an operator: the same columns for all its branches."""

    whole: ElementType | ConnectedElements
    """Elements of the operator's input."""
    number: int | None
    """Number of the branch's connected stream; None: streams are not connected."""
    key_columns: tuple[str, ...]
    """Columns of the branch's elements that make the key, if it goes into a column of its own. Empty: it is null."""
    key_type: WireType | None
    """Type of the key column; None: there is none."""
    event_time_out: bool
    """There is a column with the event time."""

    @property
    def schema(self) -> StructType:
        """The columns."""
        fields = [StructField(f.name, f.dataType) for f in self.whole.schema.fields]
        if self.event_time_out:
            fields.append(StructField(EVENT_TIME_COLUMN, LongType()))
        if self.key_type is not None:
            fields.append(StructField(KEY_COLUMN, from_arrow_type(self.key_type.arrow_type)))
        return StructType(fields)

    def columns(
        self, names: Sequence[str], columns: list[Any], stamps: Stamps, keys: pa.Array | None, schema: pa.Schema
    ) -> list[Any]:
        """The columns of rows, of the types of a schema.

        Args:
            names: Names of the columns of the branch's elements.
            columns: These columns.
            stamps: Event times.
            keys: Computed keys; None: they are in columns.
            schema: `schema` as Arrow.
        """
        count = len(columns[0])
        key = self._key(names, columns, keys)
        if self.number is not None and isinstance(self.whole, ConnectedElements):
            columns = self.whole.columns(self.number, columns, schema.types)
        if self.event_time_out:
            columns = [*columns, pa.array([None] * count if stamps is None else stamps, pa.int64())]
        whole = zip([*columns, *key], schema, strict=True)
        return [column if column.type == f.type else column.cast(f.type) for column, f in whole]

    def _key(self, names: Sequence[str], columns: list[Any], keys: pa.Array | None) -> list[Any]:
        if self.key_type is None:
            return []
        if keys is not None:
            return [keys]
        if not self.key_columns:
            return [_nulls(len(columns[0]), self.key_type.arrow_type)]
        key = [columns[names.index(name)] for name in self.key_columns]
        if len(key) == 1:
            return key
        fields: Any = list(self.key_type.arrow_type)  # type: ignore[call-overload]  the fields of a struct's type
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(key, fields, strict=True)]
        return [pa.StructArray.from_arrays(cast, fields=fields)]


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
    """The step on the rows of all sources before an operator; picklable."""

    branches: tuple[InputBranch, ...]
    output: ElementType | ConnectedElements
    key_type: WireType | None
    """Type of the key column; None: there is none."""
    event_time_out: bool
    """Add a column with the event time."""
    first_branch: int = 0
    """Number of the first branch in the job, which may have more such steps."""
    broadcasts: dict[int, Any] = field(default_factory=dict, repr=False)
    """Broadcast variables that the functions refer to: pickled with this, Spark sends them along."""

    @property
    def output_schema(self) -> StructType:
        """Columns of the prepared rows."""
        return self.form_of(self.branches[0]).schema

    def form_of(self, branch: InputBranch) -> BranchForm:
        """The form of the rows of a branch."""
        return BranchForm(
            whole=self.output,
            number=branch.number,
            key_columns=branch.key_columns,
            key_type=self.key_type,
            event_time_out=self.event_time_out,
        )

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
        self._first = plan.first_branch
        self._schema: pa.Schema = to_arrow_schema(plan.output_schema, timezone="UTC")
        self._branches = [_BranchRun(plan, branch, place, self._schema) for branch in plan.branches]

    @property
    def latest(self) -> dict[int, int]:
        """The largest event time of each branch so far."""
        return {i: b.latest_ms for i, b in enumerate(self._branches, self._first) if b.latest_ms is not None}

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
                    yield pa.RecordBatch.from_arrays(branch.columns(rows), schema=self._schema)

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
        self._form = whole.form_of(plan)
        self._schema = schema
        self._changes = changes_elements((*plan.timing, *plan.steps))
        self._reads = bool(plan.timing or plan.steps or plan.key)

    def columns(self, batch: pa.RecordBatch) -> list[Any]:
        """The prepared columns of rows of the source."""
        plan = self.plan
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
        keys = self.chain.keys(elements) if self._form.key_type is not None and plan.key is not None else None
        return self._form.columns(plan.output.schema.names, columns, stamps, keys, self._schema)

    def _update_latest(self, stamps: Stamps) -> None:
        self.latest_ms = max((t for t in (self.latest_ms, *(stamps or ())) if t is not None), default=None)
