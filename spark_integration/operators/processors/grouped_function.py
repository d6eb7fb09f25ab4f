"""Functions that get all rows of a key in a batch at once, as Spark's stateful processors do: `GroupedFunction`.

The worker gathers the rows of a batch by key, in order of arrival. Then it calls the function once for each key, and
afterwards for its timers. So a partition's rows of one batch must fit into the worker's memory: bound the batch with
the source's options (`maxFilesPerTrigger`, `maxOffsetsPerTrigger`).

Invariants: I5 (order of the input and the batch's time only), I4 (nothing is kept from batch to batch), I10 for output
(in pieces of `FIRED_ROWS` rows).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.messages.user_errors import user_code_raises
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from varvite.changelog.keyed.backend import KeyedStateBackend

FIRED_ROWS: Final = 10_000
"""Output rows of one piece."""
INITIAL_COLUMN: Final = "__varvite_initial"
"""struct, input only: a row of the operator's initial state; null in the stream's rows."""


class GroupedFunction(KeyedProcessFunction[Any, Any, Any]):
    """A keyed function that is called for groups of rows."""

    wants_heartbeats: bool
    """Timers may be due although no row comes."""
    drops_late_rows: bool
    """Rows at or before the watermark of the previous batch are dropped."""

    @abstractmethod
    def attach(self, backend: KeyedStateBackend) -> None:
        """Get the state; called once, before all other methods."""

    @abstractmethod
    def begin(self, time_ms: int, watermark_ms: int | None) -> None:
        """Begin a batch."""

    @abstractmethod
    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch, which has the stream's columns only, in the form that `process_group` takes."""

    @abstractmethod
    def process_group(self, key: Any, rows: list[Any], initial: list[Any]) -> Iterable[Any] | None:
        """Process all rows of the current key.

        Args:
            key: The stored form.
            rows: As `read` returns them; may be empty if there is initial state.
            initial: The key's rows of the initial state, in the same form.

        Returns:
            The output rows.
        """

    @abstractmethod
    def expire(self) -> Iterator[tuple[tuple[int, Any], Iterable[Any] | None]]:
        """For each due timer, after the last group: its key group and key (stored form), and its output.

        The key stays current until the next item.
        """

    @abstractmethod
    def end(self) -> None:
        """End a batch, after the last timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        """Never called: rows come in groups."""
        del value, ctx
        raise InvalidRequestError("a function on groups of rows cannot be called for a single row")


class _Group:
    """The rows of one key."""

    __slots__ = ("initial", "rows")

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.initial: list[Any] = []


class GroupedBatch:
    """Gathers the rows of a batch and calls the function.

    Args:
        function: Attached and opened here or by the caller.
        backend: Its state.
    """

    def __init__(self, function: GroupedFunction, backend: KeyedStateBackend) -> None:
        self._function = function
        self._backend = backend
        self._groups: dict[tuple[int, Any], _Group] = {}
        self._late_watermark_ms: int | None = None
        self._current: tuple[int, Any] | None = None
        self.late_rows = 0
        """Rows of the batch that were dropped."""
        function.attach(backend)

    def begin(self, time_ms: int, watermark_ms: int | None, late_watermark_ms: int | None) -> None:
        """Begin a batch; discard the rows of an earlier attempt."""
        self._groups.clear()
        self.late_rows = 0
        self._late_watermark_ms = late_watermark_ms
        self._function.begin(time_ms, watermark_ms)

    def is_late(self, times_ms: Sequence[int | None]) -> list[bool] | None:
        """For each of these event times, true if its row is late; None if none is."""
        if not self._function.drops_late_rows:
            return None
        watermark_ms = max(self._late_watermark_ms or 0, 0)  # Spark's begins at 0
        late = [time_ms is not None and time_ms <= watermark_ms for time_ms in times_ms]
        return late if any(late) else None

    def read(self, rows: pa.RecordBatch) -> list[Any]:
        """The rows of a batch in the function's form, without effect."""
        return self._function.read(rows)

    def add(
        self, batch: pa.RecordBatch, key_groups: list[int], keys: list[Any], late: list[bool] | None, columns: list[str]
    ) -> None:
        """Keep the rows of a batch.

        Args:
            batch: The rows.
            key_groups: Key group of each row.
            keys: Stored form of each row's key.
            late: Rows to leave out.
            columns: Names of the stream's columns.
        """
        at = list(zip(key_groups, keys, strict=True))
        kept = range(batch.num_rows)
        index = batch.schema.get_field_index(INITIAL_COLUMN)
        if index >= 0:
            is_initial: Any = batch.column(index).is_valid().to_pylist()
            kept = [i for i in kept if not is_initial[i]]
            self._add_initial(batch.column(index), [i for i, initial in enumerate(is_initial) if initial], at)
        if late is not None:
            self.late_rows += sum(late)
            kept = [i for i in kept if not late[i]]
        # Only rows that the function may see are read: a null in another row can change a column's dtype in pandas.
        rows = batch.select(columns)
        if len(kept) < batch.num_rows:
            rows = rows.take(pa.array(kept, pa.int64()))
        groups = self._groups
        for i, row in zip(kept, self._function.read(rows), strict=True):
            group = groups.get(at[i])
            if group is None:
                group = groups[at[i]] = _Group()
            group.rows.append(row)

    def _add_initial(self, column: Any, chosen: list[int], at: list[tuple[int, Any]]) -> None:
        """Keep the rows of the initial state."""
        if not chosen:
            return
        structs = column.take(pa.array(chosen, pa.int64()))
        table = pa.RecordBatch.from_arrays(structs.flatten(), names=[field.name for field in structs.type])
        for i, row in zip(chosen, self._function.read(table), strict=True):
            self._groups.setdefault(at[i], _Group()).initial.append(row)

    def finish(self, failed: Callable[[BaseException, Any], None]) -> Iterator[list[Any]]:
        """Call the function for all groups and due timers; yields the output rows in pieces.

        Args:
            failed: Called with an exception of the function and the stored key; the function is not called again.
        """
        self._current = None
        try:
            yield from self._pieces()
        except user_code_raises() as error:
            failed(error, None if self._current is None else self._current[1])

    def _pieces(self) -> Iterator[list[Any]]:
        out: list[Any] = []
        for result in self._results():
            if result is None:
                continue
            current = self._current
            for row in result:
                out.append(row)
                if len(out) >= FIRED_ROWS:
                    yield out
                    out = []
                    if current is not None:  # changes may have been uploaded meanwhile, which unsets the current key
                        self._backend.set_current_key(*current)
        if out:
            yield out

    def _results(self) -> Iterator[Iterable[Any] | None]:
        function, groups = self._function, self._groups
        self._backend.prefetch([at[0] for at in groups], [at[1] for at in groups])
        while groups:
            at = next(iter(groups))
            group = groups.pop(at)
            self._current = at
            self._backend.set_current_key(*at)
            yield function.process_group(at[1], group.rows, group.initial)
        for self._current, result in function.expire():
            yield result
        self._current = None
        function.end()
