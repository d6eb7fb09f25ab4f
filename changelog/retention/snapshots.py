"""Publishes snapshot descriptors and reads them. Thin I/O (`docs/internals/commit-protocol.md#adopt`).

Rules for building a snapshot: its number is `next_number`. Its files are uploaded under
`snapdata/<op>/<lo>-<hi>/<number>-<uid>/`, or are named by the descriptor of the tile that it is built on, and by no
other. Then the descriptor is published. A writer that loses the number has built garbage and begins again.

Invariants: I7 (a number is claimed once; descriptors never change), I8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.commit.adopt_decision import tile_snapshots
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.identity import check_record
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import SnapshotDescriptor, decode_record, encode_record
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.changelog.chain.view import LineView
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import SnapshotFloor
    from varvite.storage.object_stores.contract import ObjectStore


_log: Final = logging.getLogger(__name__)


class Publication(NamedTuple):
    """The outcome of publishing."""

    won: bool
    other: SnapshotDescriptor | None
    """The descriptor that holds the number instead: another snapshot, or the mark that it was given up."""


def descriptor_name(d: SnapshotDescriptor | SnapshotName) -> str:
    """The object of a descriptor."""
    return layout.snapshot(d.operator, d.low, d.high, d.number)


def next_number(floors: Iterable[SnapshotFloor], listed: Iterable[SnapshotName], like: SnapshotName) -> int:
    """The number for the next snapshot of the operator and range of `like`: above its floor and all listed ones."""
    key = like[:3]
    taken = [f.number for f in floors if (f.operator, f.low, f.high) == key]
    taken += [n.number for n in listed if (n.operator, n.low, n.high) == key]
    return max(taken, default=0) + 1


def publish(store: ObjectStore, descriptor: SnapshotDescriptor, clock: Clock) -> Publication:
    """Claim the descriptor's number. Raises `MayHaveHappenedError` if the storage gives no clear answer."""
    name = descriptor_name(descriptor)
    outcome = claim(store, name, encode_record(descriptor), descriptor.token, clock)
    if outcome.won:
        return Publication(won=True, other=None)
    other = decode_record(outcome.body, SnapshotDescriptor, name) if outcome.body else None
    if other is not None:
        check_record(other, name, descriptor.job_id)
    return Publication(won=False, other=other)


def list_snapshots(store: ObjectStore, operator: str | None = None) -> tuple[SnapshotName, ...]:
    """The names of all descriptors, aborted ones included, of one operator or of all."""
    prefix = layout.SNAPSHOTS if operator is None else layout.snapshot(operator, 0, 0, 0).rsplit("/", 2)[0] + "/"
    return tuple(layout.snapshot_name(meta.name) for meta in store.list(prefix))


class SnapshotReader:
    """Reads descriptors and caches them, since they never change; for one thread at a time."""

    def __init__(self, store: ObjectStore, job_id: str) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._job_id = job_id
        self._cached: dict[SnapshotName, SnapshotDescriptor] = {}
        self._said: set[SnapshotName] = set()

    def candidates(self, floors: Sequence[SnapshotFloor]) -> tuple[SnapshotDescriptor, ...]:
        """All descriptors whose number is above their range's floor, aborted ones included: one LIST, one GET each.

        A damaged one is left out and logged once: it can never be adopted, and the next snapshot has a higher number.
        """
        floor_of = {(f.operator, f.low, f.high): f.number for f in floors}
        listed = list_snapshots(self._store)
        self._forget_all_but(listed)
        return self.readable([n for n in listed if n.number > floor_of.get(n[:3], 0)])

    def tile_snapshots(self, view: LineView) -> dict[SnapshotName, SnapshotDescriptor]:
        """The descriptors that the view's tiles name; those that are gone or damaged are left out and logged once.

        The next snapshot of such a tile may be adopted if all of its files are its own.
        """
        names = tile_snapshots(view)
        descriptors = {SnapshotName(d.operator, d.low, d.high, d.number): d for d in self.readable(names)}
        for name in names:
            if name not in descriptors:
                self._say(
                    name, "the base of the job is gone or damaged: `varvite verify --repair` says what can be done"
                )
        return descriptors

    def tile_files(self, view: LineView) -> dict[SnapshotName, frozenset[str]]:
        """The object names in the descriptors of `tile_snapshots`."""
        descriptors = self.tile_snapshots(view)
        return {name: frozenset(file.name for file in d.files) for name, d in descriptors.items()}

    def list_all(self) -> tuple[SnapshotDescriptor, ...]:
        """Every descriptor that exists."""
        listed = list_snapshots(self._store)
        self._forget_all_but(listed)
        return self.read_all(listed)

    def read(self, name: SnapshotName) -> SnapshotDescriptor:
        """Read one descriptor. Raises `MissingObjectError`, `CorruptDataError`, `IncompatibleError`."""
        if name not in self._cached:
            self._cached[name] = self._fetch(name)
        return self._cached[name]

    def read_all(self, names: Sequence[SnapshotName]) -> tuple[SnapshotDescriptor, ...]:
        """Read those of the descriptors that still exist, in order."""
        missing = [name for name in names if name not in self._cached]
        read = zip(missing, in_parallel(self._find, missing), strict=True)
        self._cached.update({name: d for name, d in read if d is not None})
        return tuple(self._cached[name] for name in names if name in self._cached)

    def readable(
        self, names: Sequence[SnapshotName], damaged: list[SnapshotName] | None = None
    ) -> tuple[SnapshotDescriptor, ...]:
        """Read the descriptors that exist and are not damaged, in order; names of damaged ones go into `damaged`."""
        missing = [name for name in names if name not in self._cached]
        for name, read in zip(missing, in_parallel(self._find_or_error, missing), strict=True):
            if isinstance(read, CorruptDataError):
                self._say(name, f"it is passed over: {read}")
                if damaged is not None:
                    damaged.append(name)
            elif read is not None:
                self._cached[name] = read
        return tuple(self._cached[name] for name in names if name in self._cached)

    def _find_or_error(self, key: SnapshotName) -> SnapshotDescriptor | CorruptDataError | None:
        try:
            return self._find(key)
        except CorruptDataError as error:
            return error

    def _say(self, key: SnapshotName, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            _log.warning("snapshot %d of %r %d-%d: %s", key.number, key.operator, key.low, key.high, text)

    def _forget_all_but(self, listed: Sequence[SnapshotName]) -> None:
        """Evict descriptors that do not exist any more, so that the cache is bounded (I10)."""
        self._cached = {name: self._cached[name] for name in listed if name in self._cached}
        self._said.intersection_update(listed)

    def _find(self, key: SnapshotName) -> SnapshotDescriptor | None:
        try:
            return self._fetch(key)
        except MissingObjectError:
            return None

    def _fetch(self, key: SnapshotName) -> SnapshotDescriptor:
        name = layout.snapshot(*key)
        descriptor = decode_record(self._store.get(name), SnapshotDescriptor, name)
        check_record(descriptor, name, self._job_id)
        return descriptor
