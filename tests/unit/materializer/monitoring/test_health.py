from __future__ import annotations

from varvite.materializer.monitoring.health import ALIVE_WITHIN_MS, REASONS_MAX, Health
from varvite.materializer.monitoring.range_status import OVERDUE_FACTOR, JobStatus, RangeStatus, overdue
from varvite.materializer.options.policy import MaterializePolicy
from varvite.materializer.ranges import LogLength, RangeKey, RangeLoad

POLICY = MaterializePolicy(interval_ms=10_000, log_bytes=1_000, log_batches=10, replay_ms=500)
LOG = LogLength(1, 1, 1)


def status(**changed: object) -> RangeStatus:
    fields = {
        "key": RangeKey("id", "op", 0, 4), "base_seq": 5, "base_bytes": None, "log": LOG, "newest_bytes": 0,
        "log_age_ms": 0, "recovery_ms": 0,
    }  # fmt: skip
    return RangeStatus(**{**fields, **changed})  # type: ignore[arg-type]


def test_it_is_not_ready_before_the_first_look_but_alive() -> None:
    health = Health()
    assert health.alive(10**9).ok
    assert "not looked at yet" in health.ready(0).reasons[0]
    health.turned(0, "")
    assert health.ready(1).ok


def test_a_loop_that_hangs_is_neither_alive_nor_ready() -> None:
    health = Health()
    health.turned(1_000, "")
    assert health.alive(1_000 + ALIVE_WITHIN_MS - 1).ok
    late = health.alive(1_000 + ALIVE_WITHIN_MS)
    assert (late.ok, late.reasons) == (False, ("the last look at the storage ended 300 s ago",))
    assert not health.ready(1_000 + ALIVE_WITHIN_MS).ok


def test_trouble_makes_it_not_ready_and_is_named() -> None:
    health = Health()
    health.turned(0, "the jobs could not be listed")
    health.show(JobStatus(job="a", trouble="no answer"))
    health.show(JobStatus(job="b", ranges=(status(failing=True, failures=4), status(overdue="9 log batches"))))
    health.show(JobStatus(job="c", ranges=(status(failures=1),)))
    ready = health.ready(1)
    assert not ready.ok
    assert ready.reasons == (
        "the jobs could not be listed",
        "a: no answer",
        "b op[0,4): 4 failed materializations in a row",
        "b op[0,4): the log is overdue: 9 log batches",
    )
    assert health.alive(1).ok, "a restart would not help"


def test_an_answer_names_a_bounded_number_of_reasons() -> None:
    health = Health()
    for number in range(REASONS_MAX + 5):
        health.show(JobStatus(job=str(number), trouble="x"))
    assert len(health.ready(0).reasons) == REASONS_MAX


def test_the_watchdog_complains_of_a_log_far_above_each_limit() -> None:
    def of(*, batches: int = 1, size_bytes: int = 1, replay_ms: int = 0, age_ms: int = 0, segments: int = 1) -> str:
        return overdue(RangeLoad(LogLength(batches, segments, size_bytes), 0, replay_ms), age_ms, POLICY)

    assert OVERDUE_FACTOR == 3
    assert of(batches=29, size_bytes=2_999, replay_ms=1_499, age_ms=29_999) == ""
    assert "30 log batches" in of(batches=30)
    assert "3000 log bytes" in of(size_bytes=3_000)
    assert "1500 milliseconds of replay" in of(replay_ms=1_500)
    assert "30000 milliseconds since" in of(age_ms=30_000)
    assert of(batches=30, segments=0) == "", "nothing to fold"
