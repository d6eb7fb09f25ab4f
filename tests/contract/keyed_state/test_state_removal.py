"""A state is removed of every key, over every backend, with the changelog on and off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError


@pytest.fixture(params=[(kind, changelog) for kind in KINDS for changelog in ("on", "off")], ids="-".join)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyedJob]:
    kind: str = request.param[0]
    changelog: Changelog = request.param[1]
    made = KeyedJob(kind, changelog, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("ttl", [None, StateTtlConfig.new_builder(Time.seconds(1)).build()], ids=["plain", "ttl"])
def test_a_state_is_removed_of_every_key(job: KeyedJob, ttl: Any) -> None:
    def states() -> list[Any]:
        made = [
            ValueStateDescriptor("value", Types.LONG()),
            ListStateDescriptor("list", Types.LONG()),
            MapStateDescriptor("map", Types.LONG(), Types.LONG()),
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()),
            ValueStateDescriptor("kept", Types.LONG()),
        ]
        for descriptor in made:
            if ttl is not None:
                descriptor.enable_time_to_live(ttl)
        return made

    def put(key: str, n: int) -> None:
        value, items, entries, total, kept = [job.at(key, descriptor) for descriptor in states()]
        value.update(n)
        items.add_all([n, n])
        entries.put_all({n: n, n + 1: n})
        total.add(n)
        kept.update(n)

    for key in "abc":
        put(key, 1)
    job.commit()
    job.redeploy()
    for name in ("value", "list", "map", "sum", "never there"):
        job.backend.remove_state(name)
    job.commit()
    job.crash()
    assert {name: len(cells) for name, cells in job._contents(job.backend.store).items()} == {"kept": 3}
    put("b", 7)
    job.commit()
    job.redeploy()
    for name in ("value", "list", "map", "sum"):
        job.backend.remove_state(name)
    assert [job.at("b", descriptor).get() for descriptor in states()[1:2]] == [[]], "as soon as it is declared again"
    put("b", 8)
    job.commit()
    job.crash()
    value, items, entries, total, kept = [job.at("b", descriptor) for descriptor in states()]
    assert (value.value(), items.get(), total.get(), kept.value()) == (8, [8, 8], 8, 8)
    assert sorted(entries.items()) == [(8, 8), (9, 8)]
    job.set_key("a")
    job.backend.get_timers("timers", TimeDomain.EVENT_TIME).register(5)
    with pytest.raises(InvalidRequestError, match="holds timers"):
        job.backend.remove_state("_timer_state/event_timers")
