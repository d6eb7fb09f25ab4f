"""Defaults of `execute()`: the place of Spark's progress."""

from __future__ import annotations

import pytest

from varvite.spark_integration.api.job_execution import _progress_location


@pytest.mark.parametrize(
    ("conf", "storage", "location"),
    [
        ({}, "file:///data", "/data/_spark/job"),
        ({"spark.sql.streaming.checkpointLocation": "s3a://b/c/"}, "file:///data", "s3a://b/c/job"),
        ({"spark.sql.streaming.checkpointLocation": "s3a://b/c"}, "s3://b/x", "s3a://b/c/job"),
        ({}, "s3://b/x", None),
    ],
)
def test_a_program_on_other_storage_needs_no_location_as_far_as_its_sources_do(
    conf: dict[str, str], storage: str, location: str | None
) -> None:
    """It was an error, also over Kafka, whose position is in the checkpoints."""
    assert _progress_location(conf, storage, "job") == location
