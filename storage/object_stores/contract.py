"""The contract of an object store: durable bytes under names.

Only what every S3-like store can do is asked for (design 7a): GET, ranged GET, LIST (consistent), DELETE, plain
PUT, and single-PUT put-if-absent. Names are relative to the store's root, use `/`, and never begin or end with it.

Invariants:

* I1: when `put` or `put_if_absent` returns, the bytes are durable.
* A reader never sees part of an object.
* Losing a put-if-absent race is a value (`False`), never an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from varvite.storage.errors import CorruptDataError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class ObjectMeta(NamedTuple):
    """What LIST tells of one object."""

    name: str
    """Name relative to the store's root."""
    size_bytes: int
    modified_s: float
    """Last modification, seconds since the epoch by the server's clock; only ever used as a hint."""


@runtime_checkable
class ObjectStore(Protocol):
    """Durable bytes under names; every method may be called from several threads.

    Every method may raise `DidNotHappenError` (a passing failure, nothing changed), `MayHaveHappenedError` (only
    the ones that write), `InvalidRequestError` (bad name, wrong credentials, missing bucket, no permission).
    """

    @property
    def url(self) -> str:
        """The URL that opens this very store, without secrets."""
        ...

    def get(self, name: str) -> bytes:
        """Whole object. Raises `MissingObjectError` if there is none."""
        ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, exactly `length` of them.

        Raises `MissingObjectError` if there is no object, `CorruptDataError` if it ends before the range does.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store `data`, replacing what was there."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Store `data` only if nothing is there: True if this call created the object, False if one existed.

        A retry inside the client may meet this call's own earlier success and answer False: callers that must know
        put a token into the body and read back (`varvite.storage.transfer.claim`).
        """
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        """All objects whose name starts with `prefix` and is greater than `start_after`, in order of name."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; names that do not exist are fine."""
        ...

    def put_file(self, name: str, path: Path) -> None:
        """Store the file at `path` (of any size), replacing what was there."""
        ...

    def get_file(self, name: str, path: Path) -> None:
        """Fetch the object into the file `path`, which is complete or absent afterwards (temp file + rename).

        Raises `MissingObjectError` if there is no object.
        """
        ...

    def link_file(self, name: str, path: Path) -> bool:
        """Make `path`, where nothing is, another name of the object's own bytes, if the store can.

        It stays when the object is deleted or replaced. For files that nobody ever writes to: bytes changed in the one
        place are changed in the other.

        Returns:
            False: nothing happened, the object must be fetched.

        Raises:
            MissingObjectError: There is no object; a store that can never link does not look.
            InvalidRequestError: Something is at `path`.
        """
        ...


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
        "the object is cut off or the reference to it is wrong, see `varvite verify JOB --repair`",
        object_name=name,
    )


class ReusingStore(Protocol):
    """A store that writes objects otherwise than it has, or stands above one that may."""

    def is_reusable(self, name: str) -> bool:
        """Whether the object is stored as a new one would be; False also if it cannot be read. Errors as `get`."""
        ...


def is_reusable(store: ObjectStore, name: str) -> bool:
    """Whether the object is stored as a new one would be; in a store without `is_reusable` all are.

    A store that stands above others must pass it on.
    """
    return not hasattr(store, "is_reusable") or cast("ReusingStore", store).is_reusable(name)
