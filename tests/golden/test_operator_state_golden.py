"""Images of non-keyed state stay readable, for ever, and damage to one is found and named (I8)."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.golden.writers.operator_state import FILE, JOB_ID, OFFSETS, OPERATOR, RULES, WAITING, image, main
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.operator_state.image import KIND, VERSION, decode_image, encode_image
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.frame import PREFIX_BYTES, frame

NAME = "some/object"


def test_the_golden_image_gives_every_state_back() -> None:
    found = decode_image(FILE.read_bytes(), NAME)
    assert (found.job_id, found.operator) == (JOB_ID, OPERATOR)
    backend = OperatorStateBackend(OPERATOR, found.sections)
    assert [tuple(row) for row in backend.get_list_state(WAITING)] == [("a", 1), ("b", None)]
    assert backend.get_union_list_state(OFFSETS).get() == [[0, 10], [1, -(2**63)]]
    assert backend.get_broadcast_state(RULES).items() == [("z", 0.5), ("a", None)]
    assert backend.raw_operator_streams == [b"", b"\x00\xff"]
    assert backend.raw_keyed_streams == [(0, b"zero"), (127, b"")]


def test_todays_code_writes_the_golden_bytes() -> None:
    assert encode_image(image()) == FILE.read_bytes()


def test_the_golden_file_is_not_written_again() -> None:
    with pytest.raises(SystemExit):
        main()


def test_a_flipped_bit_anywhere_is_found_and_the_object_named() -> None:
    data = FILE.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptDataError) as caught:
            decode_image(bytes(damaged), NAME)
        assert caught.value.context["object_name"] == NAME, position


def test_a_truncated_or_longer_image_is_found_and_named() -> None:
    data = FILE.read_bytes()
    for damaged in (*(data[:length] for length in range(len(data))), data + b"\0", data + data):
        with pytest.raises(CorruptDataError) as caught:
            decode_image(damaged, NAME)
        assert caught.value.context["object_name"] == NAME


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    data = bytearray(FILE.read_bytes())
    struct.pack_into(">H", data, 10, 2)
    struct.pack_into(">I", data, PREFIX_BYTES - 4, zlib.crc32(data[: PREFIX_BYTES - 4]))
    with pytest.raises(IncompatibleError, match="upgrade varvite") as caught:
        decode_image(bytes(data), NAME)
    assert caught.value.context["object_name"] == NAME


SECTION = b'{"name":"a","kind":"list","value_type":"1:long","rows":1,"length":%d}'


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'{"job_id":"j","operator":"o","sections":[{"name":"a","kind":"else","rows":1,"length":0}]}',
        b'{"job_id":"j","operator":"o","sections":[%b]}' % (SECTION % 3),
        b'{"job_id":"j","operator":"o","sections":[%b,%b]}' % (SECTION % 3, SECTION % -1),
    ],
)
def test_a_header_that_does_not_fit_is_found_and_named(header: bytes) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_image(frame(KIND, VERSION, header, b"xy"), NAME)
    assert caught.value.context["object_name"] == NAME
