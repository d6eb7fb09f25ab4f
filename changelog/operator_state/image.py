"""Images: the whole non-keyed state of one partition, encoded (docs/reference/formats/operator-state.md).

An image is one frame of kind `OPST`. Its partition and its seq are not in it: they are in the chain. So partitions with
the same state have the same bytes.

Invariants: I8, I10 (an image is at most `IMAGE_BYTES_MAX`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.changelog.operator_state.section import SectionKind, StateSection
from varvite.storage.errors import CorruptDataError, InvalidRequestError
from varvite.storage.format.frame import decode_json, frame, unframe
from varvite.storage.format.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND: Final = b"OPST"
VERSION: Final = 1
IMAGE_BYTES_MAX: Final = 64 << 20
"""Largest image, bytes."""


class SectionHeader(Record, frozen=True, kw_only=True):
    """A section of the blob; they follow each other without gaps."""

    name: str
    kind: SectionKind
    value_type: str = ""
    map_key_type: str | None = None
    rows: int
    length: int
    """Bytes of the rows."""


class ImageHeader(Record, frozen=True, kw_only=True):
    """The header of an image."""

    job_id: str
    operator: str
    sections: tuple[SectionHeader, ...] = ()


class Image(msgspec.Struct, frozen=True):
    """A verified image."""

    job_id: str
    operator: str
    sections: tuple[StateSection, ...]


def encode_image(image: Image) -> bytes:
    """The image as bytes; equal images have equal bytes.

    Raises `InvalidRequestError` if they are more than `IMAGE_BYTES_MAX`.
    """
    headers = tuple(
        SectionHeader(
            name=s.name, kind=s.kind, value_type=s.value_type, map_key_type=s.map_key_type, rows=s.rows,
            length=len(s.data),
        )
        for s in image.sections
    )  # fmt: skip
    header = ImageHeader(job_id=image.job_id, operator=image.operator, sections=headers)
    body = frame(KIND, VERSION, msgspec.json.encode(header), b"".join(s.data for s in image.sections))
    if len(body) > IMAGE_BYTES_MAX:
        sizes = ", ".join(f"{s.name!r}: {len(s.data)}" for s in image.sections)
        raise InvalidRequestError(
            f"the non-keyed state of a partition has {len(body)} bytes ({sizes}), above the limit of "
            f"{IMAGE_BYTES_MAX}: it is written whole at every change; keep large state in keyed state",
            operator=image.operator,
        )
    return body


def decode_image(data: bytes | memoryview, name: str) -> Image:
    """Verify and open an image that fills `data` exactly.

    Raises:
        CorruptDataError: not an image, truncated, or a checksum does not match; names the object.
        IncompatibleError: written in a newer format.
    """
    opened = unframe(KIND, VERSION, data, name)
    header: ImageHeader = decode_json(opened.header, ImageHeader, "the image's header", name)
    lengths = [section.length for section in header.sections]
    if sum(lengths) != len(opened.blob) or min(lengths, default=0) < 0:
        raise CorruptDataError(f"the blob has {len(opened.blob)} bytes, its sections {sum(lengths)}", object_name=name)
    return Image(header.job_id, header.operator, _sections(header.sections, opened.blob))


def _sections(headers: Sequence[SectionHeader], blob: memoryview) -> tuple[StateSection, ...]:
    sections: list[StateSection] = []
    offset = 0
    for h in headers:
        data = bytes(blob[offset : offset + h.length])
        offset += h.length
        sections.append(
            StateSection(
                name=h.name, kind=h.kind, value_type=h.value_type, map_key_type=h.map_key_type, rows=h.rows, data=data
            )
        )
    return tuple(sections)
