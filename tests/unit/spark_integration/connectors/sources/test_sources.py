"""PyFlink's sources without Spark: their settings, and a job whose sources do not all end."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.common import Duration, SimpleStringSchema, WatermarkStrategy
from varvite.datastream.connectors import FileSource, NumberSequenceSource, StreamFormat
from varvite.datastream.connectors.base import Source
from varvite.spark_integration.connectors.sources.collection import collection_source
from varvite.spark_integration.connectors.sources.stream_source import Deserialization
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.plan.job import check_bounds
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.transformations import DataFrameSource
from varvite.storage.errors import InvalidRequestError

FRAME: Any = None


def text(*paths: str) -> Any:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths)


def test_a_file_source_ends_unless_it_looks_for_files() -> None:
    assert text("/a", "/b").build() == FileSource(StreamFormat("utf-8"), ("/a", "/b"))
    watching = text("/a").monitor_continuously(Duration.of_seconds(5))
    assert watching.build().interval_ms == 5000
    assert watching.process_static_file_set().build().interval_ms is None
    assert isinstance(watching.build(), Source)
    assert not isinstance(FRAME, Source)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (text, "needs a path"),
        (lambda: FileSource.for_record_stream_format(str, "/a"), "spark.readStream"),  # type: ignore[arg-type]
        (lambda: FileSource.for_bulk_file_format(None, "/a"), "parquet"),
        (lambda: text("/a").monitor_continuously(Duration.of_millis(0)), "Duration"),
        (lambda: StreamFormat.text_line_format("UTF-16"), "in ASCII"),
        (lambda: StreamFormat.text_line_format("klingon"), "no charset"),
        (lambda: NumberSequenceSource(2, 1), "0 numbers"),
        (lambda: NumberSequenceSource(-(1 << 63), (1 << 63) - 1), "2\\^63"),
        (lambda: NumberSequenceSource(0, 1 << 63), "64 bits"),
        (lambda: Deserialization(SimpleStringSchema()).flat_map(None), "tombstone"),
        (lambda: Source("java"), "from_dataframe"),
    ],
)
def test_what_cannot_be_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        call()


def frame_source(*, is_bounded: bool) -> DataFrameSource:
    elements = elements_of("v long")
    assert isinstance(elements, RowElements)
    return DataFrameSource(elements=elements, dataframe=FRAME, event_time=None, is_bounded=is_bounded)


def test_all_sources_of_a_job_end_or_none() -> None:
    collection = collection_source(elements_of(None), [1])
    ends, goes_on = frame_source(is_bounded=True), frame_source(is_bounded=False)
    check_bounds([ends, collection], {})
    check_bounds([ends, ends], {"availableNow": True})
    check_bounds([goes_on, collection], {"processingTime": "1 s"})
    with pytest.raises(InvalidRequestError, match="another one that does not"):
        check_bounds([ends, goes_on], {})
    with pytest.raises(InvalidRequestError, match="leave trigger"):
        check_bounds([ends, collection], {"processingTime": "1 s"})


def test_only_a_strategy_that_says_nothing_is_empty() -> None:
    assert WatermarkStrategy.no_watermarks().is_empty
    assert not WatermarkStrategy.for_monotonous_timestamps().is_empty
