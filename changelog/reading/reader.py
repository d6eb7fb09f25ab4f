"""`open_state`: the state of a job at a checkpoint, read from its storage alone, as plain Arrow tables.

One range of key groups (that of a tile) is restored at a time into a RocksDB store in a temporary directory: the tile,
then the log after it. So a reader needs local disk for one tile and memory for one record batch, however large the
state is (`to_arrow` returns all of it in memory). While it reads, a pin keeps what it needs from being collected.

Invariants: I5, I7 (nothing is read without a pin, unless the caller says so), I8, I9, I10.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.tiles import key_range
from varvite.changelog.operator_state.image_source import read_images
from varvite.changelog.reading.checkpoints import (
    SAVEPOINT,
    complete_checkpoints,
    find_checkpoint,
    find_savepoint,
    list_text,
    read_retention,
)
from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.operator_state_table import operator_state_tables
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.retention.pins import create_pin, list_pins, release_pin
from varvite.changelog.segments.batch import BatchTime
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingObjectError, VarviteError
from varvite.storage.format.records import Commit
from varvite.storage.job.listing import open_job
from varvite.storage.job.record import read_job
from varvite.storage.object_stores.open import open_store
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.reading.operator_state_table import OperatorStateTable
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import OperatorLayout, Pin, StateSchema
    from varvite.storage.object_stores.contract import ObjectStore

HOLDER: Final = "reader of the state"
_ARROW: Final[Any] = pa


class RestoredRange(NamedTuple):
    """Key groups `[low, high)` of an operator, restored; closed and removed when the next range is restored."""

    low: int
    high: int
    store: RocksDBStore


class StateReader:
    """The state of one job at one checkpoint; made by `open_state`.

    Each read pins the checkpoint for as long as it takes. As a context manager the reader holds one pin throughout, so
    that several reads see the checkpoint to the end even if the job goes on meanwhile.
    """

    def __init__(
        self,
        store: ObjectStore,
        checkpoint: int | str | Commit | None = None,
        *,
        clock: Clock | None = None,
        tokens: TokenSource | None = None,
        pin: bool = True,
        directory: Path | None = None,
    ) -> None:
        """`store` is rooted at `<root>/<job>`; a commit is taken as it is; for the rest see `open_state`."""
        self.job = read_job(store)
        """The job's record: its name, its id and the number of its key groups."""
        self.chain = ChainReader(store, self.job.job_id)
        """The job's chain."""
        if isinstance(checkpoint, str) and checkpoint.startswith(SAVEPOINT):
            pin = False  # the savepoint keeps it
            checkpoint = find_savepoint(self.chain, checkpoint.removeprefix(SAVEPOINT))
        is_found = isinstance(checkpoint, Commit)
        self.checkpoint: Commit = checkpoint if is_found else find_checkpoint(self.chain, checkpoint)
        """The commit that is read."""
        self._clock = clock or SystemClock()
        self._tokens = tokens or SystemTokens()
        self._pins = pin
        self._directory = directory
        self._pin: Pin | None = None
        self._view: LineView | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self._hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._release()

    @property
    def operators(self) -> tuple[str, ...]:
        """The uids of the operators that have state."""
        return tuple(operator.uid for operator in self.checkpoint.operators)

    def states(self, operator: str | None = None) -> tuple[StateSchema, ...]:
        """The states of an operator, which may be left out if there is only one."""
        return self.layout(operator).states

    def layout(self, operator: str | None = None) -> OperatorLayout:
        """The layout of an operator in the checkpoint. Raises `InvalidRequestError`."""
        layouts = {layout.uid: layout for layout in self.checkpoint.operators}
        return layouts[_chosen(operator, tuple(layouts), "operator", f"job {self.job.name!r}")]

    def state(self, state: str | None = None, operator: str | None = None) -> StateSchema:
        """The schema of a state; either may be left out if there is only one. Raises `InvalidRequestError`."""
        layout = self.layout(operator)
        schemas = {schema.name: schema for schema in layout.states}
        return schemas[_chosen(state, tuple(schemas), "state", f"operator {layout.uid!r}")]

    def columns(self, operator: str | None = None, state: str | None = None) -> StateColumns:
        """The columns in which a state is shown; their `schema` is the Arrow schema of what is read."""
        return StateColumns(self.layout(operator).key_type, self.state(state, operator))

    def operator_states(self, operator: str | None = None) -> tuple[OperatorStateTable, ...]:
        """The non-keyed states of an operator: list, union list, broadcast and raw ones; `to_arrow` gives their rows.

        Raises `InvalidRequestError`, `DidNotHappenError` and `CorruptDataError` as `to_arrow`.
        """
        uid = self.layout(operator).uid
        with self.pinned():
            return operator_state_tables(read_images(self.chain.store, self.view.images_for(uid)))

    @property
    def time(self) -> BatchTime:
        """The time of the checkpoint: values that have expired by then are left out."""
        return BatchTime(self.checkpoint.time_ms, self.checkpoint.watermark_ms)

    def to_arrow(
        self, operator: str | None = None, state: str | None = None, key_groups: range | None = None
    ) -> pa.Table:
        """A state as one Arrow table, in memory; columns as `varvite.changelog.reading.columns` says.

        Args:
            operator: Its uid; may be left out if there is only one.
            state: Its name; may be left out if there is only one.
            key_groups: Only these; None for all.

        Raises:
            InvalidRequestError: there is no such operator, state or key group.
            DidNotHappenError: the checkpoint is not retained any more.
            CorruptDataError: something is damaged; names the object.
        """
        schema = self.columns(operator, state).schema
        return _ARROW.Table.from_batches(list(self.batches(operator, state, key_groups)), schema)

    def batches(
        self, operator: str | None = None, state: str | None = None, key_groups: range | None = None
    ) -> Iterator[Any]:
        """The same as `pyarrow.RecordBatch`es, of which only one need be in memory."""
        columns = self.columns(operator, state)
        for restored in self.ranges(operator, key_groups):
            yield from columns.batches(columns.rows(restored.store, self.time))

    def ranges(self, operator: str | None = None, key_groups: range | None = None) -> Iterator[RestoredRange]:
        """Restore an operator's key groups, one tile at a time."""
        layout = self.layout(operator)
        with self.pinned():
            for span in self.split(operator, key_groups):
                with self.restored(layout, span.start, span.stop) as store:
                    yield RestoredRange(span.start, span.stop, store)

    def split(self, operator: str | None = None, key_groups: range | None = None) -> tuple[range, ...]:
        """Key groups as ranges that can be restored one by one, or side by side, without reading anything twice.

        They are those of the tiles; where there is no snapshot yet, those of the operator's partitions.
        """
        layout, selected = self.layout(operator), self.selected(key_groups)
        partitions = [
            key_range(partition, layout.parallelism, self.job.max_parallelism)[0]
            for partition in range(layout.parallelism)
        ]
        edges = {selected.start, selected.stop}
        for tile in self.view.tiles_for(layout.uid, selected.start, selected.stop):
            edges |= {tile.low, tile.high}
            if tile.snapshot is None and not tile.files:
                edges.update(edge for edge in partitions if tile.low < edge < tile.high)
        inner = sorted(edge for edge in edges if selected.start <= edge <= selected.stop)
        return tuple(range(low, high) for low, high in pairwise(inner))

    def selected(self, key_groups: range | None) -> range:
        """These key groups, or all. Raises `InvalidRequestError` unless they are a range of the job's."""
        every = range(self.job.max_parallelism)
        if key_groups is None:
            return every
        if key_groups.step != 1 or not every.start <= key_groups.start < key_groups.stop <= every.stop:
            raise InvalidRequestError(f"{key_groups} are no key groups of the job: it has {every}")
        return key_groups

    @property
    def view(self) -> LineView:
        """The view of the checkpoint: tiles, segments and images of its state."""
        # Not a cached_property: Python 3.11 holds one lock for all readers while one of them reads.
        if self._view is None:
            with self._report_if_collected():
                self._view = self.chain.load_line(self.checkpoint.link, self.job.max_parallelism).view
        return self._view

    @contextmanager
    def restored(self, layout: OperatorLayout, low: int, high: int) -> Generator[RocksDBStore]:
        """A store of key groups `[low, high)`, in a directory that is removed afterwards; call it under `pinned`."""
        with TemporaryDirectory("read", self._directory) as place:
            target = RestoreTarget(operator=layout.uid, key_type=layout.key_type, low=low, high=high)
            store = restore(self.view, target, self.chain.store, place / "state")
            try:
                yield store
            finally:
                store.close()

    @contextmanager
    def pinned(self) -> Generator[None]:
        """Keep the checkpoint."""
        self._hold()
        try:
            with self._report_if_collected():
                yield
        finally:
            self._release()

    @contextmanager
    def _report_if_collected(self) -> Generator[None]:
        """Raise `DidNotHappenError` for an object that is missing because nothing keeps the checkpoint any more."""
        try:
            yield
        except MissingObjectError as error:
            self._raise_if_collected(error)
            raise

    def _hold(self) -> None:
        if self._depth == 0 and self._pins:
            self._pin = self._create_pin()
        self._depth += 1

    def _create_pin(self) -> Pin | None:
        try:
            return create_pin(self.chain, self.checkpoint, HOLDER, self._clock, self._tokens)
        except InvalidRequestError as error:
            hint = "where the storage can only be read, read without a pin: --no-pin, or pin=False"
            raise InvalidRequestError(f"{error.message}; {hint}", **error.context) from error
        except DidNotHappenError as error:
            # It is too late for a new pin, but another reader's may keep the checkpoint.
            if any(pin.needs_from <= self.checkpoint.needs_from for pin in list_pins(self.chain)):
                return None
            self._raise_if_collected(error)
            raise

    def _raise_if_collected(self, error: VarviteError) -> None:
        """Raise `DidNotHappenError`, because of the error, if nothing keeps the checkpoint any more."""
        if read_retention(self.chain).is_complete(self.checkpoint):
            return
        raise DidNotHappenError(
            f"checkpoint {self.checkpoint.seq} (batch {self.checkpoint.batch}) is not retained any more: a part of "
            f"what it needs may be deleted; those that are complete: {list_text(complete_checkpoints(self.chain))}"
        ) from error

    def _release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._pin is not None:
            pin, self._pin = self._pin, None
            release_pin(self.chain, pin, self._clock)


def open_state(
    storage_url: str,
    job: str,
    checkpoint: int | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    pin: bool = True,
) -> StateReader:
    """Open the state of a job for reading; neither Spark nor the job need run.

    Args:
        storage_url: Root of the storage, as the job has it.
        job: The job's name.
        checkpoint: None for the newest, a seq, `"batch:7"` or `"savepoint:<name>"`; `varvite checkpoints` and
            `varvite savepoint list` list what there is.
        storage_options: fsspec's options for the storage.
        pin: Keep the checkpoint while it is read, which writes a small object to the storage and removes it again.
            False for a storage that can only be read: then a read fails if the job goes on and the checkpoint is
            collected meanwhile.

    Raises `InvalidRequestError` if there is no such job or checkpoint.
    """
    return StateReader(open_job(open_store(storage_url, storage_options), job).store, checkpoint, pin=pin)


def _chosen(name: str | None, names: tuple[str, ...], what: str, where: str) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if name in names:
        return name
    problem = f"there is no {what} {name!r} in {where}" if name else f"{where} has not just one {what}: name it"
    raise InvalidRequestError(f"{problem}; it has {', '.join(map(repr, names)) or 'none'}")
