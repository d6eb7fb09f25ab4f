"""The markers of sources beside Spark's checkpoint are read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.spark_integration.connectors.heartbeats.source_marker import QuerySources, decode_sources, encode_sources
from varvite.spark_integration.connectors.kafka.source_topics import decode_topics, encode_topics
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


def test_the_golden_note_of_topics_is_read_and_written_as_ever() -> None:
    golden, ids = GOLDEN.with_name("kafka-topics-v1"), {"0": {"orders": "6yl1SeaVS5uW1FpMg6Ydng"}, "2": {}}
    data = golden.read_bytes()
    assert decode_topics(data, "topics") == ids
    assert encode_topics(ids) == data
    for i in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_topics(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "topics")
