"""The contract of an object store: durable bytes under names.

It needs only what every S3-like store can do: GET, ranged GET, consistent LIST, DELETE, PUT, and put-if-absent by a
single PUT. Names are relative to the store's root, use `/`, and never begin or end with it.

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
    """One object of a LIST."""

    name: str
    """Name relative to the store's root."""
    size_bytes: int
    modified_s: float
    """Last modification, seconds since the epoch by the server's clock; only a hint."""


@runtime_checkable
class ObjectStore(Protocol):
    """Durable bytes under names; every method may be called from several threads.

    Every method may raise `DidNotHappenError` (a transient failure, nothing changed), `MayHaveHappenedError` (only
    methods that write), `InvalidRequestError` (bad name, wrong credentials, missing bucket, no permission).
    """

    @property
    def url(self) -> str:
        """The URL that opens this store, without secrets."""
        ...

    def get(self, name: str) -> bytes:
        """The whole object. Raises `MissingObjectError` if there is none."""
        ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Read bytes `[offset, offset + length)`, exactly `length` of them.

        Raises `MissingObjectError` if there is no object, `CorruptDataError` if it ends before the range does.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store `data`, replacing an object of that name."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Store `data` if there is no object of that name: True if this call created it, False if one existed.

        A retry inside the client may meet this call's own earlier success and answer False. Callers that must know
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
        """Store the file at `path` (of any size), replacing an object of that name."""
        ...

    def get_file(self, name: str, path: Path) -> None:
        """Fetch the object into the file `path`, which is complete or unchanged afterwards (temporary file and rename).

        Raises `MissingObjectError` if there is no object.
        """
        ...

    def link_file(self, name: str, path: Path) -> bool:
        """Make `path`, which does not exist, a hard link to the object's bytes, if the store can.

        It stays when the object is deleted or replaced. For files that nobody ever writes to, since both names share
        their bytes.

        Returns:
            False: the store cannot link; the object must be fetched.

        Raises:
            MissingObjectError: There is no object; a store that can never link does not look.
            InvalidRequestError: `path` exists.
        """
        ...


def check_range(name: str, offset: int, length: int) -> None:
    """Raises `InvalidRequestError` unless `offset` and `length` are 0 or more."""
    if offset < 0 or length < 0:
        raise InvalidRequestError(
            f"range of {length} bytes from byte {offset} is not a range; both numbers must be 0 or more",
            object_name=name,
        )


def truncated(name: str, offset: int, length: int, existing: int) -> CorruptDataError:
    """The error of an object that ends before the range does: `existing` bytes of the range exist."""
    return CorruptDataError(
        f"only {existing} of the {length} bytes from byte {offset} exist; "
        "the object is truncated or the reference to it is wrong, see `varvite verify JOB --repair`",
        object_name=name,
    )


def range_of(data: bytes, name: str, offset: int, length: int) -> bytes:
    """The answer of `get_range` for an object that holds `data`; errors as there."""
    check_range(name, offset, length)
    if offset + length > len(data):
        raise truncated(name, offset, length, max(0, len(data) - offset))
    return data[offset : offset + length]


class ReusingStore(Protocol):
    """A store that may write an object in another way than an existing one (its key was rotated), or one above it."""

    def is_reusable(self, name: str) -> bool:
        """Can a new snapshot refer to the object? False as well if it cannot be read. Errors as `get`."""
        ...


def is_reusable(store: ObjectStore, name: str) -> bool:
    """Can a new snapshot refer to an existing object, or must it be written again because its key was rotated?

    In a store without `is_reusable` all objects can be reused. A store above another one must pass the call on.
    """
    return not hasattr(store, "is_reusable") or cast("ReusingStore", store).is_reusable(name)
