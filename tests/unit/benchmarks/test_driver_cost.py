"""The benchmark of the driver's own cost, with few partitions and batches; and that this cost is in proportion."""

from __future__ import annotations

import pytest

from benchmarks.many_partitions.driver_cost import ADOPT_EVERY, Driver, measure_memory, measure_time
from varvite.changelog.chain.segment_index import SegmentIndex
from varvite.changelog.commit import plan as commit_plan
from varvite.changelog.commit import state as chain_state
from varvite.changelog.commit.pack import is_packable
from varvite.storage.format.records import SegmentRef


def test_the_drivers_cost_is_measured() -> None:
    cases = {case["entries"]: case for case in measure_time(64, 32, 3 * ADOPT_EVERY, 1)}
    assert set(cases) == {"ordinary", "full", "adopting", "adopting all", "all"}
    assert sum(case["batches"] for case in cases.values()) == 2 * cases["all"]["batches"]
    assert cases["adopting"]["batches"] > ADOPT_EVERY / 2
    assert measure_memory(4, 32, 3) > 0


def entry_bytes(parallelism: int, batches: int) -> list[tuple[str, int]]:
    driver = Driver(parallelism, 32)
    found = []
    for _ in range(batches):
        found.append(driver.execute(*driver.answers()))
        driver.between()
    driver.run.close()
    return found


def test_an_entry_takes_so_many_bytes_per_partition_whatever_the_parallelism() -> None:
    for parallelism in (64, 256):
        ordinary = [size for kind, size in entry_bytes(parallelism, 20) if kind == "ordinary"]
        assert max(ordinary) < 2_000 + parallelism * 300


def test_an_ordinary_commit_does_not_look_at_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[SegmentRef] = []

    def counting(ref: SegmentRef) -> bool:
        looked.append(ref)
        return is_packable(ref)

    monkeypatch.setattr(chain_state, "packable_of", lambda refs: [ref for ref in refs if counting(ref)])
    monkeypatch.setattr(commit_plan, "is_packable", counting)
    counted: list[int] = []
    count = SegmentIndex.still_counting
    monkeypatch.setattr(SegmentIndex, "still_counting", lambda *args: counted.append(1) or count(*args))
    driver = Driver(32, 32)
    per_batch: list[int] = []
    for number in range(25):
        looked.clear()
        if number == 1:  # the first commit has begun the operator's tile
            counted.clear()
        kind, _ = driver.execute(*driver.answers())
        driver.between()
        if number and kind == "ordinary":
            per_batch.append(len(looked))
    driver.run.close()
    assert len(per_batch) > 20
    assert set(per_batch) == {0}
    assert counted == []
