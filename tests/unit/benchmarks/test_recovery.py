"""Restarts beside Spark's."""

from __future__ import annotations

from benchmarks.recovery import findings


def restarts(**seconds: float) -> list[dict[str, object]]:
    modes = {"log": "log", "base": "base + log", "local": "local"}
    return [{"mode": modes[name], "restore_s": took_s} for name, took_s in seconds.items()]


def test_each_restart_is_compared_with_sparks_from_the_like_on_the_same_storage() -> None:
    cases = [
        {"system": "varvite-rocksdb", "storage": storage, "restarts": restarts(log=6.0, base=4.0, local=6.0)}
        for storage in ("local", "s3")
    ]
    spark = {"system": "spark-changelog", "storage": "local", "restarts": restarts(log=15.0, base=10.0)}
    log, base, local = findings([*cases, spark])
    assert log.startswith("met: varvite-rocksdb on local, log")
    assert log.endswith("6.0 s, Spark 15.0 s, 40%")
    assert base.startswith("met: varvite-rocksdb on local, base + log")
    assert base.endswith("40%")
    assert local.startswith("NOT met: varvite-rocksdb on local, local")
    assert local.endswith("6.0 s, Spark 10.0 s, 60%")
