"""What a file sink keeps beside its output: whose directory it is, and which batch is complete (docs/formats).

Invariant: I8 (both are frames with magic, version and checksums; a torn one does not open).
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from varve.storage.errors import CorruptDataError
from varve.storage.format.frame import frame, unframe

VERSION: Final = 1
MARKERS: Final = "_varve"
"""Directory of the markers; Spark's readers pass over names that begin with `_`."""
OWNER: Final = f"{MARKERS}/owner"
_COMMIT: Final = re.compile(r"commit-(\d{20})")


class OutputOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose output directory it is."""

    job_id: str
    query_id: str


class OutputCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a batch is complete."""

    job_id: str
    batch: int
    seq: int


M = TypeVar("M", OutputOwner, OutputCommit)
_KINDS: Final[dict[type[OutputOwner | OutputCommit], bytes]] = {OutputOwner: b"OUTO", OutputCommit: b"OUTC"}


def commit_name(seq: int) -> str:
    """Name of the marker of a seq."""
    return f"{MARKERS}/commit-{seq:020d}"


def commit_seq(file: str) -> int | None:
    """The seq that a file name below `_varve/` is the marker of; None for other files."""
    match = _COMMIT.fullmatch(file)
    return int(match[1]) if match else None


def encode_marker(marker: OutputOwner | OutputCommit) -> bytes:
    """A marker as the bytes of its file."""
    return frame(_KINDS[type(marker)], VERSION, msgspec.json.encode(marker))


def decode_marker(data: bytes, kind: type[M], object_name: str) -> M:
    """The marker in a file. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_KINDS[kind], VERSION, data, object_name)
    try:
        return msgspec.json.decode(opened.header, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"the marker does not parse: {error}", object_name=object_name) from error
