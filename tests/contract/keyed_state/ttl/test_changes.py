"""TTL that is switched on, changed and switched off while there is state (see conftest.py for the ways of life).

Where a test expects that something has expired, it must be so whether it was removed before or not.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.keyed_state.ttl.states import TTL_MS, average, entries, items, total, ttl, value
from tests.jobs.keyed_job import KeyedJob
from tests.jobs.living_job import CUT, CUT_LOG, FOLDED, LIVES, PENDING, LivingJob
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.storage.errors import IncompatibleError, InvalidRequestError

ON = ttl().build()
LONGER = ttl(10 * TTL_MS).build()
SHORTER = ttl(TTL_MS // 2).build()
KEPT = ttl().disable_cleanup_in_background().build()


@pytest.fixture(params=[life for life in LIVES if life not in (PENDING, CUT, CUT_LOG)])
def life(request: pytest.FixtureRequest) -> str:
    """Settings change between batches, so there is no life that is pending for good."""
    return request.param


def restart(job: LivingJob) -> None:
    """Commit, and begin again with other settings; in memory where the life says so."""
    job.step()
    if job.life == FOLDED:
        job.redeploy()


def fill(job: LivingJob, config: StateTtlConfig | None) -> None:
    job.at("k", value(config)).update("v")
    job.at("k", items(config)).add_all([1, 2])
    job.at("k", entries(config)).put_all({"a": [1], "n": None})
    job.at("k", total(config)).add(3)
    job.at("k", average(config)).add(4)


def seen(job: LivingJob, config: StateTtlConfig | None) -> list[Any]:
    return [
        job.at("k", value(config)).value(),
        job.at("k", items(config)).get(),
        dict(job.at("k", entries(config)).items()),
        job.at("k", total(config)).get(),
        job.at("k", average(config)).get(),
    ]


FULL = ["v", [1, 2], {"a": [1], "n": None}, 3, 4.0]
EMPTY = [None, [], {}, None, None]


def test_what_is_there_when_ttl_is_switched_on_lives_for_one_ttl(job: LivingJob) -> None:
    job.move_time(1000)
    fill(job, None)
    restart(job)
    job.move_time(5000)
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(5000 + TTL_MS - 1)
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(5000 + TTL_MS)
    assert seen(job, ON) == EMPTY
    fill(job, ON)
    restart(job)
    job.move_time(5000 + 2 * TTL_MS - 1)
    assert seen(job, ON) == FULL


def test_ttl_counts_from_its_first_batch_also_if_that_changes_nothing(job: LivingJob) -> None:
    fill(job, None)
    restart(job)
    job.move_time(1000)
    for state in (value, items, entries, total, average):
        job.handle(state(ON))
    restart(job)
    job.move_time(1000 + TTL_MS)
    assert seen(job, ON) == EMPTY


def test_a_shorter_ttl_counts_from_the_last_write(job: LivingJob) -> None:
    fill(job, ON)
    restart(job)
    job.move_time(TTL_MS // 2)
    assert seen(job, SHORTER) == EMPTY


def test_a_longer_ttl_keeps_what_has_not_expired(job: LivingJob) -> None:
    fill(job, ON)
    restart(job)
    job.move_time(TTL_MS - 1)
    assert seen(job, LONGER) == FULL
    restart(job)
    job.move_time(10 * TTL_MS - 1)
    assert seen(job, LONGER) == FULL
    restart(job)
    job.move_time(10 * TTL_MS)
    assert seen(job, LONGER) == EMPTY


@pytest.mark.parametrize("first", [ON, KEPT], ids=["cleaned", "kept"])
@pytest.mark.parametrize("then", [None, LONGER], ids=["off", "longer"])
def test_what_has_expired_does_not_come_back(
    job: LivingJob, first: StateTtlConfig, then: StateTtlConfig | None
) -> None:
    fill(job, first)
    restart(job)
    job.move_time(TTL_MS)
    assert seen(job, then) == EMPTY
    fill(job, then)
    restart(job)
    assert seen(job, then) == FULL


def test_on_off_and_on_again(job: LivingJob) -> None:
    fill(job, ON)
    restart(job)
    job.move_time(TTL_MS - 1)
    assert seen(job, None) == FULL
    restart(job)
    job.move_time(100 * TTL_MS)
    assert seen(job, None) == FULL
    job.at("k", items(None)).add(3)
    restart(job)
    job.move_time(200 * TTL_MS)
    longer = ["v", [1, 2, 3], *FULL[2:]]
    assert seen(job, ON) == longer
    restart(job)
    job.move_time(201 * TTL_MS - 1)
    assert seen(job, ON) == longer
    restart(job)
    job.move_time(201 * TTL_MS)
    assert seen(job, ON) == EMPTY


def test_another_time_characteristic_begins_new_lives_while_nothing_can_have_expired(job: LivingJob) -> None:
    event = ttl().use_event_time().build()
    fill(job, None)
    restart(job)
    job.move_time(1000)
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(1000 + TTL_MS - 1, 300)
    assert seen(job, event) == FULL
    restart(job)
    job.move_time(10**6, 300 + TTL_MS - 1)
    assert seen(job, event) == FULL
    restart(job)
    job.move_time(10**6, 300 + TTL_MS)
    assert seen(job, event) == EMPTY


def test_another_time_characteristic_is_refused_where_something_may_have_expired(job: LivingJob) -> None:
    """A value that cleanup had not yet removed was there again, and went once more where a fold had swept it."""
    job.move_time(1000)
    fill(job, ON)
    restart(job)
    job.move_time(1000 + TTL_MS, 300)
    with pytest.raises(IncompatibleError, match="cannot change to event time"):
        seen(job, ttl().use_event_time().build())
    restart(job)
    job.move_time(1001 + TTL_MS, 300)
    assert seen(job, ON) == EMPTY


def test_a_batch_that_is_dropped_switches_nothing_on_for_good(job: LivingJob) -> None:
    fill(job, None)
    restart(job)
    job.move_time(1000)
    assert seen(job, ON) == FULL
    job.drop()
    job.crash()
    job.move_time(3000)
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(3000 + TTL_MS - 1)
    assert seen(job, ON) == FULL


def test_the_log_tells_of_a_new_ttl_without_rows(kind: str, tmp_path: Any) -> None:
    job = KeyedJob(kind, "on", tmp_path)
    job.at("k", value(ON)).update("v")
    assert [len(change) for change in job.backend.changes()] == [1]
    job.commit()
    job.move_time(10)
    job.handle(value(ON))
    assert job.backend.changes() == []
    job.redeploy()
    job.handle(value(LONGER))
    [change] = job.backend.changes()
    assert (len(change), change.schema.ttl and change.schema.ttl["ttl_ms"]) == (0, 10 * TTL_MS)
    job.redeploy()
    job.handle(value(LONGER))
    assert job.backend.changes() == [change], "a batch that was dropped told nobody"
    job.commit()
    assert job.backend.changes() == []
    job.close()


def test_one_state_has_one_ttl_in_a_batch(job: LivingJob) -> None:
    job.handle(value(ON))
    job.handle(value(ttl().update_ttl_on_read_and_write().build()))
    with pytest.raises(InvalidRequestError, match="state 'value'"):
        job.handle(value(LONGER))


def test_ttl_does_not_make_another_type_fit(job: LivingJob) -> None:
    fill(job, ON)
    restart(job)
    wrong: Any = items(ON)
    wrong.name = "value"
    with pytest.raises(IncompatibleError, match="value"):
        job.handle(wrong)


def test_a_change_of_ttl_is_in_the_log_also_if_the_batch_leaves_in_parts(job: LivingJob) -> None:
    job.move_time(10)
    fill(job, None)
    restart(job)
    job.move_time(1000)
    assert seen(job, ON) == FULL
    job.cut()
    job.at("new", value(ON)).update("x")
    job.cut()
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(1000 + TTL_MS - 1)
    assert seen(job, ON) == FULL
    restart(job)
    job.move_time(1000 + TTL_MS)
    assert seen(job, ON) == EMPTY
    assert job.at("new", value(ON)).value() is None
