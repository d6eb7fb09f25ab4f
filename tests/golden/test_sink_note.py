"""The note of a sink that is done is read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.spark_integration.connectors.sink_note import decode_note, encode_note
from varvite.storage.errors import CorruptDataError
from varvite.storage.format.records import Link

GOLDEN = Path(__file__).parent / "data" / "sink-note-v1"
COMMIT = Link(8, "00000000000000000000000000000008")


def test_the_golden_note_is_read_and_written_as_ever() -> None:
    assert decode_note(GOLDEN.read_bytes(), "sink") == COMMIT
    assert encode_note(COMMIT) == GOLDEN.read_bytes()


def test_a_changed_byte_is_noticed() -> None:
    data = bytearray(GOLDEN.read_bytes())
    for i in range(len(data)):
        data[i] ^= 1
        with pytest.raises(CorruptDataError):
            decode_note(bytes(data), "sink")
        data[i] ^= 1
