"""`VectorizedProcessFunction`: a keyed function of Arrow batches that accesses the state of all their keys at once.

It runs where a `KeyedProcessFunction` runs, over the same state, log and checkpoints. As there, one instance serves one
partition and its fields are a cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from varvite.changelog.api.functions import Function
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.spark_integration.functions.keyed import RuntimeContext

    BatchOutput = pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch | pa.Table] | None

__all__ = ["VectorizedContext", "VectorizedProcessFunction"]


class VectorizedProcessFunction(Function, ABC):
    """Processes the rows of a partition as Arrow batches.

    All rows that a micro-batch has for the partition come in one call, or in several, in order, if they have more than
    `input_bytes_max` bytes. A partition without rows is not called.
    """

    input_bytes_max: ClassVar[int] = 128 << 20
    """Input is gathered until it has this many bytes in Arrow's memory, and then processed. 1: every batch of Spark's
    by itself (`spark.sql.execution.arrow.maxRecordsPerBatch` rows)."""

    class Context(ABC):
        """About the batch being processed; valid only during the call."""

        @abstractmethod
        def keys(self) -> BatchKeys:
            """The distinct keys of the batch, for the many-key methods of state handles.

            `keys().array` holds them as Arrow, `keys().positions` for each row the position of its key.
            """

        @abstractmethod
        def set_current_key(self, position: int) -> None:
            """Let the single-key methods of state handles refer to `keys().array[position]`."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Time of the micro-batch, milliseconds since the epoch; never goes back from batch to batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Watermark of the micro-batch, milliseconds since the epoch; -2**63 before there is one.

            Behind another operator it is that of the previous micro-batch.
            """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per instance before its first batch: get state handles here."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: VectorizedProcessFunction.Context) -> BatchOutput:
        """Process a batch of rows.

        Args:
            batch: The rows, with the stream's columns.
            ctx: About this batch.

        Returns:
            The output rows: a table or record batch with the columns of the output schema, by name (values are cast
            without loss); several of these (usually by `yield`); or None.
        """


class EndsBatches(ABC):
    """A vectorised function that is called again at the end of each micro-batch, whether it had rows or not."""

    @abstractmethod
    def end_batch(self) -> BatchOutput:
        """More output rows, in the forms of `process_batch`."""


class VectorizedContext(VectorizedProcessFunction.Context):
    """The context that a runner makes for each call; keys are grouped lazily."""

    def __init__(
        self,
        make_keys: Callable[[], BatchKeys],
        select: Callable[[int, Any], None],
        time_ms: int,
        watermark_ms: int,
    ) -> None:
        self._make_keys = make_keys
        self._select = select
        self._keys: BatchKeys | None = None
        self._time_ms = time_ms
        self._watermark_ms = watermark_ms

    def keys(self) -> BatchKeys:
        if self._keys is None:
            self._keys = self._make_keys()
        return self._keys

    def set_current_key(self, position: int) -> None:
        keys = self.keys()
        if not 0 <= position < len(keys):
            raise InvalidRequestError(f"there is no key {position}; the batch has {len(keys)}")
        self._select(keys.key_groups[position], keys.stored[position])

    def current_processing_time(self) -> int:
        return self._time_ms

    def current_watermark(self) -> int:
        return self._watermark_ms
