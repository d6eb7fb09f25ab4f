"""Byte ranges of objects: `[offset, offset + length)`."""

from __future__ import annotations

from varve.storage.errors import CorruptDataError, InvalidRequestError


def check_range(name: str, offset: int, length: int) -> None:
    """Raises `InvalidRequestError` unless `offset` and `length` are 0 or more."""
    if offset < 0 or length < 0:
        raise InvalidRequestError(
            f"range of {length} bytes from byte {offset} is not a range; both numbers must be 0 or more",
            object_name=name,
        )


def cut_off(name: str, offset: int, length: int, found: int) -> CorruptDataError:
    """The error of an object that ends before the range does, after `found` of the range's bytes."""
    return CorruptDataError(
        f"only {found} of the {length} bytes from byte {offset} exist; "
        "the object is cut off or the reference to it is wrong, see `varve verify JOB --repair`",
        object_name=name,
    )
