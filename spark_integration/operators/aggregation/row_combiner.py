"""The function for `mapInArrow` that combines the rows of a key in the task that reads them, before the shuffle.

It yields partial results, named by `partial_name`. Each row has its own; those of a key's rows are reduced to one row.
Where that might not be exact (a sum that may not fit, NaN among numbers that are compared), each row is yielded with
its own partial results, and the state worker merges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.types.decimals import PRECISION_MAX, SUM_DIGITS, DecimalType
from varvite.spark_integration.elements.arrow_task import freeze_modules, promptly
from varvite.spark_integration.elements.grouped_rows import sum_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

arrow: Any = pa
pc: Any = pyarrow.compute
INPUT_BYTES_MAX: Final = 64 << 20
"""Bytes of rows that are combined together; a task with more yields a key several times."""
_OUTPUT_ROWS_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of partial results."""

    name: str
    kind: str
    """count, sum, double_sum, min or max."""
    column: str | None
    """Column of the input; None only for count, which then counts rows."""


@dataclass(frozen=True, slots=True)
class RowCombiner:
    """Combines rows in Spark's Python worker; picklable."""

    key_columns: tuple[str, ...]
    """Columns of atomic types, except floating-point numbers; only keys with equal bytes are combined."""
    partials: tuple[Partial, ...]
    input_bytes_max: int = INPUT_BYTES_MAX

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in; key columns and partial results out."""
        freeze_modules()
        for rows in _gathered(promptly(batches), self.input_bytes_max):
            yield from self.combined(rows).to_batches(max_chunksize=_OUTPUT_ROWS_MAX)

    def combined(self, rows: Any) -> Any:
        """The partial results of a table of rows, in no particular order."""
        singles = [
            _SINGLES[p.kind](None if p.column is None else rows.column(p.column), len(rows)) for p in self.partials
        ]
        keys = [rows.column(name) for name in self.key_columns]
        names = [*self.key_columns, *(p.name for p in self.partials)]
        if not all(_is_exact(p.kind, single) for p, single in zip(self.partials, singles, strict=True)):
            return arrow.table([*keys, *singles], names)
        key_names = [f"k{i}" for i in range(len(keys))]
        value_names = [f"v{i}" for i in range(len(singles))]
        grouped = arrow.table([*keys, *singles], [*key_names, *value_names]).group_by(key_names, use_threads=False)
        reduced = [(name, _REDUCTIONS[p.kind]) for name, p in zip(value_names, self.partials, strict=True)]
        combined = grouped.aggregate(reduced)
        columns = [combined.column(name) for name in key_names]
        for (name, function), single in zip(reduced, singles, strict=True):
            columns.append(combined.column(f"{name}_{function}").cast(single.type))  # sums of decimals are wider
        return arrow.table(columns, names).combine_chunks()


def _gathered(batches: Iterable[Any], bytes_max: int) -> Iterator[Any]:
    """Tables of at least this many bytes, except the last; at most a batch more, none is empty."""
    gathered: list[Any] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= bytes_max:
            yield arrow.Table.from_batches(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield arrow.Table.from_batches(gathered)


def _count(column: Any, rows: int) -> Any:
    return arrow.array(np.ones(rows, np.int64)) if column is None else column.is_valid().cast(pa.int64())


def _sum(column: Any, _rows: int) -> Any:
    if not pa.types.is_decimal(column.type):
        return column.cast(pa.int64())
    return column.cast(DecimalType(column.type.precision, column.type.scale).sum_type().arrow_type)


_SINGLES: Final[dict[str, Callable[[Any, int], Any]]] = {
    "count": _count,
    "sum": _sum,
    "double_sum": lambda column, _: column.cast(pa.float64(), safe=False),
    "min": lambda column, _: column,
    "max": lambda column, _: column,
}
"""The partial results of single rows."""
_REDUCTIONS: Final = {"count": "sum", "sum": "sum", "double_sum": "sum", "min": "min", "max": "max"}
"""The Arrow function that reduces partial results."""


def _is_exact(kind: str, single: Any) -> bool:
    if kind == "sum" and pa.types.is_decimal(single.type):
        return single.type.precision < PRECISION_MAX and len(single) <= 10**SUM_DIGITS
    if kind == "sum":
        return sum_fits(single)
    if kind in ("min", "max") and pa.types.is_floating(single.type):
        return not pc.any(pc.is_nan(single)).as_py()  # to Spark the largest number; Arrow ignores it
    return True
