"""PyFlink's builders of file sinks: settings that have an effect, those that have none, and those that are refused."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from varvite.common import Encoder, Types
from varvite.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
    StreamingFileSink,
)
from varvite.spark_integration.connectors.files.row_file_sink import RowFileSettings, TextLine
from varvite.storage.errors import InvalidRequestError


def builder() -> Any:
    return FileSink.for_row_format("/out", Encoder.simple_string_encoder())


def config(prefix: str, suffix: str = "") -> OutputFileConfig:
    return OutputFileConfig.builder().with_part_prefix(prefix).with_part_suffix(suffix).build()


def test_settings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "varvite")
    assert builder().build()._settings == RowFileSettings("/out", BucketAssigner("yyyy-MM-dd--HH"), config("part"))
    made = builder().with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    made = made.with_output_file_config(config("a", ".txt")).with_rolling_policy(
        RollingPolicy.on_checkpoint_rolling_policy()
    )
    assert made.disable_compact().build()._settings == RowFileSettings("/out", BucketAssigner(""), config("a", ".txt"))
    assert caplog.text == "", "nothing of that is without effect"
    builder().with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=5)).with_bucket_check_interval(5)
    assert caplog.text.count("has no effect") == 2
    old = StreamingFileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()
    assert isinstance(old, FileSink)


def test_lines_are_javas_where_the_type_is_known_and_else_pythons() -> None:
    typed = pickle.loads(pickle.dumps(TextLine(Types.TUPLE([Types.STRING(), Types.INT()]))))
    assert (typed(("a", 1)), TextLine(None)(("a", 1))) == (("(a,1)",), ("('a', 1)",))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FileSink.for_row_format("/out", str), "simple_string_encoder"),  # type: ignore[arg-type]
        (lambda: FileSink.for_bulk_format("/out", None), "parquet"),
        (lambda: builder().enable_compact(None, None), "enable_checkpointing"),
        (lambda: builder().with_bucket_assigner("day"), "partitionBy"),
        (lambda: builder().with_output_file_config(config("_x")), "leave out"),
        (lambda: builder().with_output_file_config(config("a/b")), "divides directories"),
    ],
)
def test_what_would_write_other_files_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        call()
