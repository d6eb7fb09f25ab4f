"""The order in which a state worker processes the rows of an Arrow batch: by key group.

All that is kept per key lies by key group: pending changes, the tables of both backends, the rows of a segment. Rows
that are processed in that order make objects that lie in memory in the order in which they are encoded and folded
later, and reads of RocksDB that fall into the same blocks. In the order of arrival every one of these passes misses the
processor's caches at each row.

Rows of one key group keep their order, so those of a key do. Between keys there is none to keep: a shuffle has mixed
them. Only a single partition keeps the order of its input, which programs with parallelism 1 may count on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute


def in_key_group_order(batch: pa.RecordBatch, column: int) -> pa.RecordBatch:
    """The rows by ascending key group, those of a key group in the order in which they were.

    Args:
        batch: Rows.
        column: Index of the column of key groups, integers without nulls.
    """
    return batch.take(_compute.array_sort_indices(batch.column(column)))
