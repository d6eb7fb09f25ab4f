"""Spark's offset log files, byte by byte as Spark 4.3 writes them."""

from __future__ import annotations

import pytest

from varvite.materializer.restore.spark_files import parse_offsets
from varvite.storage.errors import CorruptDataError, IncompatibleError

HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":1795228976781,"conf":{"spark.sql.shuffle.partitions":"2"}}'
LATER = '{"batchWatermarkMs":5,"batchTimestampMs":1795228999999,"conf":{"spark.sql.shuffle.partitions":"4"}}'


def offsets(*lines: str) -> list[str]:
    return [offset.line for offset in parse_offsets("\n".join(lines).encode(), "offsets/7", 7)]


def test_the_settings_of_a_batch_do_not_count() -> None:
    assert offsets("v1", HEAD, '{"logOffset":0}') == offsets("v1", LATER, '{"logOffset":0}')
    assert offsets("v1", HEAD, '{"logOffset":0}') != offsets("v1", HEAD, '{"logOffset":1}')


def test_sources_without_names_are_told_apart_by_their_place() -> None:
    assert offsets("v1", HEAD, "-", "7") != offsets("v1", HEAD, "7", "-")


def test_sources_with_names_may_change_places() -> None:
    a, b = 'main:{"logOffset":0}', "heartbeat:17"
    assert offsets("v2", HEAD, a, b) == offsets("v2", HEAD, b, a)
    assert offsets("v2", HEAD, a, b) != offsets("v2", HEAD, a, "heartbeat:18")


@pytest.mark.parametrize(
    "lines",
    [
        ("",),
        ("v1",),
        ("v1", HEAD),
        ("v1", HEAD, ""),
        ("v1", HEAD, '{"logOff'),
        ("v2", HEAD, 'main:{"logOff'),
        ("v2", HEAD, "main"),
        ("{}", HEAD, "1"),
    ],
)
def test_a_torn_or_foreign_file_is_corrupt(lines: tuple[str, ...]) -> None:
    with pytest.raises(CorruptDataError) as caught:
        offsets(*lines)
    assert caught.value.context == {"batch": 7, "object_name": "offsets/7"}


def test_an_unknown_version_is_incompatible() -> None:
    with pytest.raises(IncompatibleError, match="v3"):
        offsets("v3", HEAD, "1")
