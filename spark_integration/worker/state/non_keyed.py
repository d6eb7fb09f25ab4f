"""The non-keyed state of one operator in its state worker: what is confirmed, the backend over it, and its images.

The first batch of a driver run begins with what `varvite.changelog.operator_state.redistribution` gives the partition
of all images of the base; every other batch with the partition's own. Whatever differs from the own image at a batch's
end is written with the batch. So the first batch's redistribution is, too, and does not happen again when a worker
restores later.

Invariants: I3 (every execution of the first batch redistributes the same images), I4 (only `confirm` changes what is
confirmed; `drop` leaves a backend's changes behind), I9 (nothing is kept on local disk).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.operator_state.image import Image, encode_image
from varvite.changelog.operator_state.image_source import read_images
from varvite.changelog.operator_state.redistribution import Place, redistributed, union_shares
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.changelog.operator_state.section import StateSection
    from varvite.spark_integration.messages.protocol import BatchRequest, OperatorRequest, TaskRequest
    from varvite.storage.format.records import ImageRef, Link
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.transfer.upload import Uploader

Sections = tuple["StateSection", ...]


class _Version(NamedTuple):
    """Version of the state: a commit, as its batch left it or as the first batch of a run begins on it."""

    base: Link
    redistributed: bool


class NonKeyedState:
    """The non-keyed state of one operator on one partition. Used by one thread.

    Args:
        request: The operator.
        partition: Its partition.
        store: The job's store.
    """

    def __init__(self, request: OperatorRequest, partition: int, store: ObjectStore) -> None:
        self._operator = request.operator
        self._generic_types = request.generic_types
        self._job_id = request.job_id
        self._store = store
        low, high = key_range(partition, request.parallelism, request.max_parallelism)
        self._place = Place(partition, request.parallelism, low, high)
        self._version: _Version | None = None
        self._own: Sections = ()
        """The partition's own image at the base."""
        self._begin: Sections = ()
        """The state that a batch on the base begins with."""
        self._shares: dict[str, list[StateSection]] = {}
        """The share that the first batch of a run keeps of union lists that the function does not ask for."""
        self._backend: OperatorStateBackend | None = None

    @property
    def backend(self) -> OperatorStateBackend:
        """The state as the function sees it. Raises `IncompatibleError` for a type that the job does not allow."""
        if self._backend is None:
            self._backend = OperatorStateBackend(
                self._operator, self._begin, self._shares, generic_types=self._generic_types
            )
        return self._backend

    def is_at(self, batch: BatchRequest) -> bool:
        """Can the batch begin without `restore`?"""
        return self._version == _version_of(batch)

    def restore(self, batch: BatchRequest, images_at_base: Callable[[], Sequence[ImageRef]]) -> None:
        """Begin with the state at the base; the function and its handles must have been dropped.

        Args:
            batch: The request, with its base.
            images_at_base: The images of all partitions of the operator, if the base has any.

        Raises:
            VarviteError: an image cannot be read.
        """
        self._version, self._own, self._begin, self._shares = None, (), (), {}
        if batch.has_images:
            self._read(images_at_base(), redistribute=batch.is_first)
        self._version = _version_of(batch)

    def _read(self, refs: Sequence[ImageRef], *, redistribute: bool) -> None:
        parallelism, place = {ref.parallelism for ref in refs}, self._place
        if len(parallelism) != 1 or (parallelism != {place.parallelism} and not redistribute):
            problem = f"expected images of {place.parallelism} partitions, found images of {sorted(parallelism)}"
            raise CorruptDataError(
                f"{problem}; see `varvite verify JOB --repair`", operator=self._operator, partition=place.partition
            )
        same_place = [ref for ref in refs if (ref.partition, ref.parallelism) == (place.partition, place.parallelism)]
        images = read_images(self._store, refs if redistribute else same_place)
        self._own = self._begin = images[same_place[0]] if same_place else ()
        if redistribute:
            by_partition, before = {ref.partition: sections for ref, sections in images.items()}, parallelism.pop()
            self._begin = redistributed(by_partition, before, place)
            self._shares = union_shares(by_partition, before, place)

    def encoded(self, sections: Sections) -> bytes | None:
        """The image of what a batch ends with; None if that is the partition's own already.

        Raises `InvalidRequestError` if it is larger than an image may be.
        """
        return None if sections == self._own else encode_image(Image(self._job_id, self._operator, sections))

    def upload(self, data: bytes, task: TaskRequest, open_uploader: Callable[[], Uploader]) -> ObjectSlice:
        """Upload an image under the attempt's own name; answers its place. Raises `VarviteError`."""
        name = layout.image(task.batch.slot, self._operator, self._place.partition, task.tag)
        with open_uploader() as uploader:
            upload = uploader.submit_bytes(name, data)
        upload.result()
        return ObjectSlice(name, 0, len(data), zlib.crc32(data))

    def confirm(self, sections: Sections, at: Link) -> None:
        """Make the sections the state of commit `at`, as which their batch was committed."""
        self._own = self._begin = sections
        self._shares = {}
        if self._backend is not None:
            self._backend.settle()
        self._version = _Version(at, redistributed=False)

    def drop(self) -> None:
        """Throw the function's handles away."""
        self._backend = None

    def forget(self) -> None:
        """Require a restore before the next batch, in any case."""
        self._version = None


def _version_of(batch: BatchRequest) -> _Version:
    return _Version(batch.base, batch.is_first)
