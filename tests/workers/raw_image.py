"""Images of non-keyed state for tests to which it does not matter what is in them."""

from __future__ import annotations

import msgspec

from tests.jobs.state_model import OPERATOR
from varvite.changelog.operator_state.image import Image, encode_image
from varvite.changelog.operator_state.section import RAW_OPERATOR, StateSection


def raw_image(job_id: str, stream: bytes) -> bytes:
    """The image of a partition that keeps one raw stream."""
    section = StateSection(name="", kind=RAW_OPERATOR, rows=1, data=msgspec.msgpack.encode([stream]))
    return encode_image(Image(job_id, OPERATOR, (section,)))
