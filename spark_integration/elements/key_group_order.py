"""The order in which a state worker processes the rows of an Arrow batch: by key group.

Everything per key is stored by key group: pending changes, the tables of both backends, the rows of a segment. Rows
processed in that order create objects in the order of memory in which they are later encoded and folded, and RocksDB
reads fall into the same blocks. In the order of arrival each of these passes misses the processor's caches at each row.

Rows of one key group keep their order, so those of a key do. The order between keys is lost in a shuffle anyway. Only a
single partition keeps the order of its input, on which programs with parallelism 1 may rely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute


def in_key_group_order(batch: pa.RecordBatch, column: int) -> pa.RecordBatch:
    """The rows by ascending key group; those of a key group keep their order.

    Args:
        batch: Rows.
        column: Index of the column of key groups, integers without nulls.
    """
    return batch.take(_compute.array_sort_indices(batch.column(column)))
