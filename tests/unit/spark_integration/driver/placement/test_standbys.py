"""Partitions that must move go where standbys have copies of them, as far as the placement stays even."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from tests.workers.evenness import unevenness
from varvite.materializer.standby.record import OperatorCopies, StandbyRecord
from varvite.spark_integration.driver.placement.decision import Executor, Placement, most_wishes, next_placement
from varvite.spark_integration.driver.placement.standbys import IN_USE, NO_COPIES, StandbyCopies

SALT = "job"
OPERATORS = frozenset({("sums", 9), ("counts", 9)})


def executors(*hosts: str) -> list[Executor]:
    """One on each host."""
    return [Executor(f"on-{host}", host) for host in hosts]


def record(
    host: str, *, in_use: tuple[tuple[int, int], ...] = (), **copies: tuple[tuple[int, int, int], ...]
) -> StandbyRecord:
    """Record of a host's standby; in use are partitions of all operators."""
    operators = [
        OperatorCopies(operator=uid, parallelism=9, copies=copies.get(uid, ()), in_use=in_use)
        for uid in ("sums", "counts")
    ]
    return StandbyRecord(job_id="0123", host=host, names=(f"{host}.example", host), operators=tuple(operators))


def both(host: str, *copies: tuple[int, int, int]) -> StandbyRecord:
    return record(host, sums=copies, counts=copies)


def of_sums(host: str, parallelism: int, *copies: tuple[int, int, int]) -> StandbyRecord:
    """Records about a job with one operator."""
    own = OperatorCopies(operator="sums", parallelism=parallelism, copies=copies)
    return StandbyRecord(job_id="0123", host=host, names=(host,), operators=(own,))


def told(*records: StandbyRecord) -> StandbyCopies:
    return StandbyCopies(records, OPERATORS)


def hosts(placement: Placement) -> list[str]:
    """By partition."""
    return [executor.host for executor in placement.by_partition]


def test_a_copy_is_one_of_all_operators_and_as_fresh_as_the_oldest() -> None:
    copies = told(
        record("a", sums=((0, 3, 20),), counts=((1, 4, 10),)),
        record("b", in_use=((2, 3),), sums=((2, 3, 15),)),
    )
    found = [{name: seq for name, seq in one.items() if "." not in name} for one in copies.by_partition(9)]
    assert found == [{}, {"a": 10}, {"a": 10, "b": IN_USE}, *[{}] * 6]
    assert set(copies.by_partition(9)[1]) == {"a", "a.example"}


def test_copies_of_another_parallelism_or_operator_do_not_count() -> None:
    one = both("a", (0, 9, 20))
    assert not any(told(one).by_partition(8))
    assert not any(StandbyCopies((one,), frozenset({("sums", 9), ("others", 9)})).by_partition(9))
    assert any(StandbyCopies((one,), frozenset({("sums", 9), ("others", 3)})).by_partition(9))
    assert not any(NO_COPIES.by_partition(9))


def lost_on_d(*records: StandbyRecord) -> tuple[set[int], Placement]:
    """Of nine partitions on three hosts, those on d, and the placement after d's executor is lost and c's has come."""
    before = next_placement(Placement(), 9, executors("a", "b", "d"), SALT)
    lost = {partition for partition, host in enumerate(hosts(before)) if host == "d"}
    after = next_placement(before, 9, executors("a", "b", "c"), SALT, told(*records))
    assert Counter(hosts(after)) == {"a": 3, "b": 3, "c": 3}
    return lost, after


def test_only_partitions_that_must_move_are_moved_whatever_copies_there_are() -> None:
    lost, after = lost_on_d(both("a", (0, 9, 30)), both("b", (0, 9, 30)))
    assert {partition for partition, host in enumerate(hosts(after)) if host == "c"} == lost


@pytest.mark.parametrize("freshest", ["a", "b"])
def test_partitions_of_a_lost_executor_go_to_the_freshest_copy_as_far_as_there_is_room(freshest: str) -> None:
    before = next_placement(Placement(), 9, executors("a", "b", "d"), SALT)
    lost = [partition for partition, host in enumerate(hosts(before)) if host == "d"]
    other = {"a": "b", "b": "a"}[freshest]
    copies = told(both(freshest, (0, 9, 30)), both(other, (0, 9, 20)))
    after = next_placement(before, 9, executors("a", "b"), SALT, copies)
    assert Counter(hosts(after)[p] for p in lost) == {freshest: 2, other: 1}
    assert all(hosts(after)[p] == host for p, host in enumerate(hosts(before)) if host != "d")


def test_a_copy_counts_more_than_the_host_where_the_partition_was() -> None:
    """There the files of the lost executor's workers are, as old as their last flush."""
    before = next_placement(Placement(), 9, executors("a", "b", "d"), SALT)
    lost = {partition for partition, host in enumerate(hosts(before)) if host == "d"}
    again = [*executors("a", "b"), Executor("second", "d"), *executors("e")]
    without = next_placement(before, 9, again, SALT)
    assert Counter(hosts(without)[p] for p in lost)["d"] >= 2
    copies = told(both("e", *((p, p + 1, 30) for p in sorted(lost))))
    assert Counter(hosts(next_placement(before, 9, again, SALT, copies))[p] for p in lost)["e"] == 2


def test_what_a_process_of_the_host_uses_is_a_copy_too_but_the_oldest() -> None:
    """A batch that was under way when the executor was lost has left a worker there."""
    before = next_placement(Placement(), 9, executors("a", "b", "d"), SALT)
    lost = [partition for partition, host in enumerate(hosts(before)) if host == "d"]
    for p in lost:
        after = next_placement(before, 9, executors("a", "b"), SALT, told(record("a", in_use=((p, p + 1),))))
        assert hosts(after)[p] == "a"
        fresh = both("b", (p, p + 1, 9))
        after = next_placement(before, 9, executors("a", "b"), SALT, told(record("a", in_use=((p, p + 1),)), fresh))
        assert hosts(after)[p] == "b"


def test_a_new_executor_is_given_partitions_that_have_a_copy_on_its_host() -> None:
    before = next_placement(Placement(), 9, executors("a", "b"), SALT)
    wanted = [hosts(before).index("a"), len(hosts(before)) - 1 - hosts(before)[::-1].index("b")]
    after = next_placement(
        before, 9, executors("a", "b", "c"), SALT, told(both("c", *((p, p + 1, 7) for p in sorted(wanted))))
    )
    assert all(hosts(after)[p] == "c" for p in wanted)


def test_a_run_begins_where_the_copies_are() -> None:
    copies = told(both("a", (0, 3, 7)), both("b", (3, 6, 7)), both("c", (6, 9, 7)))
    placement = next_placement(Placement(), 9, executors("c", "a", "b"), SALT, copies)
    assert hosts(placement) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


@pytest.mark.parametrize("seed", range(40))
def test_no_even_choice_gives_more_partitions_a_copy(seed: int) -> None:
    """Against all choices there are; and what is not lost stays, with any copies."""
    rng = random.Random(seed)
    partitions = rng.randint(3, 7)
    names = [f"h{n}" for n in range(4)]
    operators = frozenset({("sums", partitions)})
    before = next_placement(Placement(), partitions, executors(*names), SALT)
    left = executors(*rng.sample(names, rng.randint(2, 3)))
    records = tuple(
        of_sums(name, partitions, *((p, p + 1, rng.randint(1, 3)) for p in range(partitions) if rng.random() < 0.4))
        for name in names
    )
    after = next_placement(before, partitions, left, SALT, StandbyCopies(records, operators))
    alive = {executor.host for executor in left}
    assert unevenness(hosts(after), min(len(left), partitions)) <= 1
    stay = {p for p, host in enumerate(hosts(before)) if host in alive}
    assert all(hosts(after)[p] == hosts(before)[p] for p in stay)
    fresh = StandbyCopies(records, operators).by_partition(partitions)
    lost = [p for p in range(partitions) if p not in stay]
    room = Counter(hosts(after)) - Counter(hosts(before)[p] for p in stay)
    most = max(
        sum(host in fresh[p] for p, host in zip(lost, choice, strict=True))
        for choice in itertools.permutations(sorted(room.elements()))
    )
    assert sum(hosts(after)[p] in fresh[p] for p in lost) == most


def test_a_partition_gives_a_wish_up_for_one_that_has_no_other() -> None:
    a, b, c = executors("a", "b", "c")
    assert most_wishes({0: [a, b], 1: [a]}, {a: 1, b: 1}) == {0: b, 1: a}
    assert most_wishes({0: [a, b], 1: [b, c], 2: [a], 3: [a]}, {a: 1, b: 1, c: 1}) == {0: b, 1: c, 2: a}
    room = {a: 2, b: 0}
    assert most_wishes({0: [b], 1: [], 2: [b, a]}, room) == {2: a}
    assert room == {a: 1, b: 0}


def test_thousands_of_partitions_are_placed_by_their_copies() -> None:
    names = [f"h{n}" for n in range(50)]
    rng = random.Random(7)
    chosen = {p: rng.sample(names, 2) for p in range(4096)}
    records = tuple(of_sums(name, 4096, *((p, p + 1, 5) for p, own in chosen.items() if name in own)) for name in names)
    copies = StandbyCopies(records, frozenset({("sums", 4096)}))
    placement = next_placement(Placement(), 4096, executors(*names), SALT, copies)
    assert unevenness(hosts(placement), 50) <= 1
    assert sum(host in chosen[p] for p, host in enumerate(hosts(placement))) == 4096
