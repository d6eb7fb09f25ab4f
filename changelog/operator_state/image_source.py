"""Reading of the images that a restore needs: verified, and each slice once, however many partitions share it.

Invariants: I8 (CRC of every slice; an image must be of its reference's operator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.changelog.operator_state.image import decode_image
from varvite.storage.errors import CorruptDataError
from varvite.storage.transfer.slice_reader import read_slices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.changelog.operator_state.section import StateSection
    from varvite.storage.format.records import ImageRef, ObjectSlice
    from varvite.storage.object_stores.contract import ObjectStore


def read_images(store: ObjectStore, images: Iterable[ImageRef]) -> dict[ImageRef, tuple[StateSection, ...]]:
    """The sections of each image.

    Raises:
        MissingObjectError: an object is gone; names it.
        CorruptDataError: a slice fails its CRC, or is of another operator than its reference.
        IncompatibleError: written by a newer varvite.
    """
    by_slice: dict[ObjectSlice, list[ImageRef]] = {}
    for image in images:
        by_slice.setdefault(image.data, []).append(image)
    sections: dict[ImageRef, tuple[StateSection, ...]] = {}
    for place, data in read_slices(store, by_slice):
        image = decode_image(data, place.name)
        for ref in by_slice[place]:
            if image.operator != ref.operator:  # the job may be another one, whose state this job began with
                raise CorruptDataError(
                    f"the image is of operator {image.operator!r} of job {image.job_id}, but is referred to as "
                    f"{ref.operator!r}; see `varvite verify JOB --repair`",
                    object_name=place.name,
                    operator=ref.operator,
                    partition=ref.partition,
                )
            sections[ref] = image.sections
    return sections
