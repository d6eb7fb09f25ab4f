"""Intervals, and how they compare with Spark's."""

from __future__ import annotations

from benchmarks.trigger_interval import findings, whole_steps


def test_an_interval_is_rounded_up_to_whole_steps() -> None:
    assert [whole_steps(ms) for ms in (0.5, 10, 10.1, 333)] == [10, 10, 20, 340]


def test_the_target_is_for_s3_alone() -> None:
    found = [
        {"job": "function", "system": system, "storage": storage, "interval_ms": ms}
        for storage, pairs in {"local": (300, 400), "s3": (300, 700)}.items()
        for system, ms in zip(("varve-rocksdb", "spark-changelog"), pairs, strict=True)
    ]
    local, s3 = findings(found)
    assert local == "function, varve-rocksdb on local: 300 ms, 1.33x shorter than spark-changelog (400 ms)"
    assert s3.startswith("met: ")
