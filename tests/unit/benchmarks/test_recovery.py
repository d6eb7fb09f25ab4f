"""Restarts beside Spark's."""

from __future__ import annotations

from benchmarks.recovery import findings


def test_each_restart_is_compared_with_sparks_on_the_same_storage() -> None:
    cases = [
        {"system": "varve-rocksdb", "storage": storage,
         "restarts": [{"mode": "log", "restore_s": 6.0}, {"mode": "base + log", "restore_s": 4.0}]}
        for storage in ("local", "s3")
    ]  # fmt: skip
    spark = {"system": "spark-changelog", "storage": "local", "restarts": [{"mode": "base + log", "restore_s": 10.0}]}
    log, base = findings([*cases, spark])
    assert log.startswith("NOT met: varve-rocksdb on local, log")
    assert base.startswith("met: varve-rocksdb on local, base + log")
    assert base.endswith("40%")
