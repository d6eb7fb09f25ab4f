"""Prices of requests, and what is counted as one."""

from __future__ import annotations

import pytest

from benchmarks.harness.object_files import ObjectCounts
from benchmarks.requests_and_bill import MONTH_S, findings, spark_parts, state_bill, usd_per_month

COUNTED = """\
batch PUT changelog requests 400
batch PUT changelog bytes 4000
batch RENAME changelog requests 400
batch RENAME changelog bytes 4000
batch PUT logs requests 4
batch PUT logs bytes 40
batch HEAD logs requests 6
batch HEAD logs bytes 0
background PUT snapshot requests 400
background PUT snapshot bytes 400000
background LIST state requests 400
background LIST state bytes 0
"""


def test_a_write_costs_more_than_a_read_and_a_deletion_nothing() -> None:
    assert usd_per_month({"PUT": 1.0}) == pytest.approx(MONTH_S * 5e-6) == pytest.approx(12.96)
    assert usd_per_month({"LIST": 1.0}) == usd_per_month({"PUT": 1.0}) == usd_per_month({}, renames=1.0)
    assert usd_per_month({"GET": 0.5, "HEAD": 0.5}) == pytest.approx(MONTH_S * 4e-7)
    assert usd_per_month({"DELETE": 100.0}) == 0


def test_sparks_maintenance_is_spread_over_the_checkpoints_between_two_rounds() -> None:
    """400 snapshots of 200 partitions are two rounds; there is one in 60 seconds."""
    parts = spark_parts(ObjectCounts.parse(COUNTED), checkpoints=2, partitions=200)
    assert parts["job"]["requests"] == {"PUT": 200}
    assert parts["job"]["renames"] == 200
    assert parts["job"]["written_bytes"] == 2_000
    assert parts["maintenance"]["requests"] == pytest.approx({"PUT": 200 / 60, "LIST": 200 / 60})
    assert parts["Spark's logs"]["requests"] == {"PUT": 2, "HEAD": 3}


def test_counts_are_told_apart_by_what_came_before() -> None:
    counts = ObjectCounts.parse(COUNTED)
    nothing = counts - counts
    assert not nothing.by_kind(background=False)
    assert nothing.put_bytes(background=True) == 0
    assert counts.put_bytes(background=False) == 4_040


def test_the_bill_of_the_state_is_without_sparks_own_logs() -> None:
    counted = spark_parts(ObjectCounts.parse(COUNTED), 2, 200)
    spark = {"system": "spark-changelog", "changes": "small", "storage": "files", "parts": counted}
    parts = {"job": {"requests": {"PUT": 1.0}}, "materializer": {"requests": {"LIST": 1.0}}}
    own = {"system": "varvite", "changes": "small", "storage": "gcs", "parts": parts}
    assert state_bill(own) == pytest.approx(2 * 12.96)
    assert state_bill(spark) == pytest.approx((200 + 2 * 200 / 60) * 12.96)
    assert state_bill(spark, renames=True) == pytest.approx((400 + 2 * 200 / 60) * 12.96)
    asked = {"query": {"requests": {"PUT": 1.1}}}
    query = {"system": "varvite-query", "changes": "small", "storage": "s3", "parts": asked}
    found, of_query = findings([own, spark, query])
    assert found.startswith("met: small changes on gcs cost less than on spark-changelog")
    assert of_query == "met: a whole query costs less than 15 USD a month — 14.26 USD"
