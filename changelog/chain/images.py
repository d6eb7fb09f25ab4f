"""The images of non-keyed state that count after a commit. Pure.

An image is the whole non-keyed state of one (operator, partition) as of the commit whose batch wrote it. It counts
until the partition writes another one. When the parallelism of an operator changes, the images of its old partitions
no longer count: the first batch has written those of the new ones.

Invariants: I5 (the images that count are a function of the line), I7 (what counts is named by every full entry).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from varvite.storage.format import layout
from varvite.storage.format.records import ImageRef, ObjectSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.storage.format.records import Commit

COPY_BYTES: Final = 16 << 20
"""Approximate limit of the images that one full entry copies, the oldest first; a larger image is copied alone."""


def own_images(commit: Commit, blob_offset: int) -> tuple[ImageRef, ...]:
    """The images that the commit's own batch wrote; inline ones are slices of the chain object.

    Args:
        commit: The commit.
        blob_offset: Place in its object at which the blob begins, bytes.
    """
    name = layout.chain(commit.seq)
    parallelism = {operator.uid: operator.parallelism for operator in commit.operators}
    images: list[ImageRef] = []
    for part in commit.parts:
        data = part.image_uploaded
        if part.image is not None:
            data = ObjectSlice(name, blob_offset + part.image.offset, part.image.length, part.image.crc32)
        if data is not None:
            images.append(ImageRef(part.operator, part.partition, parallelism[part.operator], commit.seq, data))
    return tuple(images)


def kept_images(images: Sequence[ImageRef], commit: Commit) -> tuple[ImageRef, ...]:
    """The images of the commit's base that still count after it."""
    if not images:
        return ()
    parallelism = {operator.uid: operator.parallelism for operator in commit.operators}
    written = {(p.operator, p.partition) for p in commit.parts if p.image is not None or p.image_uploaded is not None}
    return tuple(
        image
        for image in images
        if parallelism.get(image.operator) == image.parallelism and (image.operator, image.partition) not in written
    )


def joined_images(kept: Iterable[ImageRef], written: Iterable[ImageRef]) -> tuple[ImageRef, ...]:
    """Both together, by operator and partition."""
    return tuple(sorted((*kept, *written), key=lambda image: (image.operator, image.partition)))


def images_to_copy(images: Iterable[ImageRef]) -> tuple[ImageRef, ...]:
    """The images that a full entry copies into its own pack: the oldest, about `COPY_BYTES` of them, at least one.

    A reference to an object of an old slot keeps everything since then from being collected, so no reference may stay
    old for ever (I7, I10). As long as all images together are small, a full entry needs no object before it.
    """
    chosen: list[ImageRef] = []
    slices: set[ObjectSlice] = set()
    size_bytes = 0
    for image in sorted(images, key=lambda i: (_age_slot(i), i.operator, i.partition)):
        if image.data not in slices:
            size_bytes += image.data.length
            if chosen and size_bytes > COPY_BYTES:
                break
            slices.add(image.data)
        chosen.append(image)
    return tuple(chosen)


def _age_slot(image: ImageRef) -> int:
    """The slot of the image's object. Another job's object counts as the oldest, so that its hold can be released."""
    return 0 if layout.is_shared(image.data.name) else layout.object_slot(image.data.name)
