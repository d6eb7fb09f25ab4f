"""Places of partitions, and moves when executors come and go."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.workers.evenness import unevenness
from tests.workers.summaries import grouped, summary
from varvite.spark_integration.driver.placement.decision import (
    Executor,
    JoinForm,
    PartitionMoves,
    Placement,
    is_one_process,
    join_form,
    next_placement,
)
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries

SALT = "job"


def executors(*names: str) -> list[Executor]:
    """Each on a host of its own."""
    return [Executor(name, f"host-{name}") for name in names]


def ids(placement: Placement) -> list[str]:
    """The executors by partition."""
    return [executor.id for executor in placement.by_partition]


def moves(before: Placement, after: Placement) -> int:
    """Number of partitions that have another executor."""
    return sum(a != b for a, b in zip(before.by_partition, after.by_partition, strict=True))


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_a_first_placement_is_even(partitions: int, count: int) -> None:
    placement = next_placement(Placement(), partitions, executors(*map(str, range(count))), SALT)
    assert len(placement.by_partition) == partitions
    assert unevenness(ids(placement), min(count, partitions)) <= 1


def test_nothing_moves_while_the_executors_stay_whatever_their_order() -> None:
    first = next_placement(Placement(), 8, executors("0", "1", "2"), SALT)
    assert next_placement(first, 8, executors("2", "0", "1"), SALT) is first


def test_when_an_executor_is_lost_only_its_partitions_move() -> None:
    first = next_placement(Placement(), 9, executors("0", "1", "2"), SALT)
    second = next_placement(first, 9, executors("0", "2"), SALT)
    stayed = [p for p, name in enumerate(ids(first)) if name != "1"]
    assert all(ids(first)[p] == ids(second)[p] for p in stayed)
    assert unevenness(ids(second), 2) <= 1


def test_a_replacement_gets_its_share_and_no_more_moves_than_that() -> None:
    first = next_placement(Placement(), 9, executors("0", "1", "2"), SALT)
    second = next_placement(first, 9, executors("0", "2"), SALT)
    third = next_placement(second, 9, executors("0", "2", "3"), SALT)
    assert Counter(ids(third)) == {"0": 3, "2": 3, "3": 3}
    assert moves(second, third) == 3


def test_a_replacement_on_the_same_host_gets_the_partitions_that_were_there_at_once_or_later() -> None:
    first = next_placement(Placement(), 9, executors("0", "1", "2"), SALT)
    lost = [p for p, name in enumerate(ids(first)) if name == "1"]
    replacement = Executor("3", "host-1")
    at_once = next_placement(first, 9, [*executors("0", "2"), replacement], SALT)
    assert [p for p, name in enumerate(ids(at_once)) if name == "3"] == lost
    assert moves(first, at_once) == len(lost)
    without = next_placement(first, 9, executors("0", "2"), SALT)
    later = next_placement(without, 9, [*executors("0", "2"), replacement], SALT)
    assert [p for p, name in enumerate(ids(later)) if name == "3"] == lost


@pytest.mark.parametrize("partitions", [7, 9])
def test_an_executor_that_can_be_used_again_gets_partitions_back_that_were_its_own(partitions: int) -> None:
    """As when an exclusion ends; nothing else moves either time."""
    first = next_placement(Placement(), partitions, executors("0", "1", "2"), SALT)
    own = {partition for partition, name in enumerate(ids(first)) if name == "1"}
    without = next_placement(first, partitions, executors("0", "2"), SALT)
    assert moves(first, without) == len(own)
    again = next_placement(without, partitions, executors("0", "1", "2"), SALT)
    back = {partition for partition, name in enumerate(ids(again)) if name == "1"}
    assert moves(without, again) == len(back) == partitions // 3
    assert back <= own


def test_executors_that_all_went_and_came_again_get_the_partitions_of_their_hosts() -> None:
    """As with dynamic allocation between two batches that are far apart."""
    first = next_placement(Placement(), 6, executors("0", "1", "2"), SALT)
    none = next_placement(first, 6, [], SALT)
    assert not none.needs_anchor
    again = next_placement(none, 6, [Executor(f"{n + 3}", f"host-{n}") for n in range(3)], SALT)
    assert [e.host for e in again.by_partition] == [e.host for e in first.by_partition]


def test_more_executors_than_partitions_leave_some_without() -> None:
    first = next_placement(Placement(), 2, executors("0", "1", "2"), SALT)
    assert len(set(ids(first))) == 2
    idle = next(name for name in ("0", "1", "2") if name not in ids(first))
    second = next_placement(first, 2, executors(*sorted({"0", "1", "2"} - {idle})), SALT)
    assert ids(second) == ids(first)


def test_an_anchor_is_needed_where_tasks_could_run_elsewhere() -> None:
    assert not next_placement(Placement(), 4, executors("0"), SALT).needs_anchor
    assert next_placement(Placement(), 4, executors("0", "1"), SALT).needs_anchor


def test_small_jobs_do_not_all_begin_with_the_same_executor() -> None:
    first = {ids(next_placement(Placement(), 1, executors("0", "1", "2"), f"job-{n}"))[0] for n in range(50)}
    assert first == {"0", "1", "2"}


@pytest.mark.parametrize("seed", range(20))
def test_through_any_history_it_is_even_and_moves_no_more_than_it_must(seed: int) -> None:
    rng = random.Random(seed)
    partitions = rng.randrange(1, 40)
    alive, number = executors("0"), 1
    placement = next_placement(Placement(), partitions, alive, SALT)
    for _ in range(60):
        if len(alive) > 1 and rng.random() < 0.4:
            alive.remove(rng.choice(alive))
        else:
            alive.append(Executor(str(number), f"host-{rng.randrange(5)}"))
            number += 1
        rng.shuffle(alive)
        after = next_placement(placement, partitions, alive, SALT)
        assert set(after.by_partition) <= set(alive)
        assert unevenness(ids(after), min(len(alive), partitions)) <= 1
        held = sorted((ids(placement).count(e.id) for e in alive), reverse=True)
        least, larger = divmod(partitions, len(alive))
        assert moves(placement, after) == partitions - sum(
            min(n, least + (place < larger)) for place, n in enumerate(held)
        )
        placement = after


def test_unevenness_counts_executors_without_partitions() -> None:
    assert unevenness(["0", "0", "1"], 2) == 1
    assert unevenness(["0", "0", "1"], 3) == 2
    assert unevenness([], 0) == 0


def test_only_where_driver_and_executor_are_one_process_there_is_nothing_to_choose() -> None:
    assert all(map(is_one_process, ("local", "local[*]", "local[2,4]")))
    assert not any(map(is_one_process, ("local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://https://host")))


def test_the_hash_form_needs_reduce_tasks_without_wishes() -> None:
    assert join_form("false") is join_form("False ") is JoinForm.HASH
    assert join_form("true") is JoinForm.MERGE


def test_moves_are_counted_from_batch_to_batch() -> None:
    def batch(*names: str) -> tuple[OperatorSummaries, ...]:
        return grouped(summary(partition=p, executor=name) for p, name in enumerate(names))

    moved = PartitionMoves()
    assert [moved.after(batch(*names)) for names in ("aab", "aab", "bab", "bba", "bba")] == [0, 0, 1, 2, 0]
