"""The marker beside Spark's checkpoint is read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.spark_integration.connectors.source_marker import QuerySources, decode_sources, encode_sources
from varvite.storage.errors import CorruptDataError

GOLDEN = Path(__file__).parent / "data" / "query-sources-v1"


def test_the_golden_marker_is_read_and_written_as_ever() -> None:
    assert decode_sources(GOLDEN.read_bytes(), "sources") == QuerySources(heartbeat=True)
    assert encode_sources(QuerySources(heartbeat=True)) == GOLDEN.read_bytes()


def test_a_changed_byte_is_noticed() -> None:
    data = bytearray(GOLDEN.read_bytes())
    for i in range(len(data)):
        data[i] ^= 1
        with pytest.raises(CorruptDataError):
            decode_sources(bytes(data), "sources")
        data[i] ^= 1
