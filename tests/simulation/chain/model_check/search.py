"""Breadth-first search over all worlds within bounds; every reachable world is checked."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.chain.model_check.driver_steps import DriverSteps
from tests.simulation.chain.model_check.side_steps import (
    CollectorSteps,
    MaterializerSteps,
    OperatorSteps,
    ReaderSteps,
    check_pinned,
    late_steps,
    spark_steps,
)
from tests.simulation.chain.model_check.world import Bounds, Tables, ViolationError, World, first


@dataclass(frozen=True)
class Found:
    """A violation and the steps that lead to it."""

    message: str
    trace: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a search."""

    worlds: int
    depth: int
    violation: Found | None
    is_exhausted: bool


class Search:
    """One search; `trace` keeps for each world how it was reached."""

    def __init__(self, bounds: Bounds, *, trace: bool) -> None:
        self._bounds = bounds
        self._tables = Tables()
        self._drivers = DriverSteps(bounds, self._tables)
        self._collector = CollectorSteps(bounds, self._tables)
        self._materializer = MaterializerSteps(bounds, self._tables)
        self._reader = ReaderSteps(bounds, self._tables)
        self._operator = OperatorSteps(bounds, self._tables)
        self._keeps_trace = trace
        self._reached: dict[int, tuple[int, str]] = {}
        self._seen: set[int] = set()

    def run(self, worlds_max: int) -> Outcome:
        """Search until nothing is new, a violation is found, or there are more than `worlds_max` worlds."""
        gc.disable()  # millions of tuples and no cycles: looking for some takes a third of the time
        try:
            return self._run(worlds_max)
        finally:
            gc.enable()

    def _run(self, worlds_max: int) -> Outcome:
        start = first(self._bounds)
        layer, depth = [start], 0
        self._seen.add(hash(start))
        while layer:
            following: list[World] = []
            for world in layer:
                try:
                    self._expand(world, following)
                except ViolationError as error:
                    return Outcome(len(self._seen), depth, Found(str(error), self._trace(world)), is_exhausted=False)
            if len(self._seen) > worlds_max:
                return Outcome(len(self._seen), depth, None, is_exhausted=False)
            layer, depth = following, depth + 1
        return Outcome(len(self._seen), depth, None, is_exhausted=True)

    def _expand(self, world: World, following: list[World]) -> None:
        key = hash(world) if self._keeps_trace else 0
        for label, step in self._steps(world):
            after = self._tables.without_garbage(step)
            mark = hash(after)
            if mark in self._seen:
                continue
            self._seen.add(mark)
            if self._keeps_trace:
                self._reached[mark] = (key, label)
            if after[:2] != world[:2] or after.acked != world.acked or after.reader != world.reader:
                self._check(after, label)
            following.append(after)

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        for number, driver in enumerate(world.drivers):
            if number == 0 or driver != world.drivers[number - 1]:
                yield from self._drivers.steps(world, number)
        yield from self._collector.steps(world)
        yield from self._materializer.steps(world)
        yield from self._reader.steps(world)
        yield from spark_steps(world, self._bounds)
        yield from late_steps(world)
        yield from self._operator.steps(world)

    def _check(self, world: World, label: str) -> None:
        missing = self._tables.needed(world.chain, world.objects) or check_pinned(world, self._tables)
        if missing:
            raise ViolationError(f"{label}: {missing} (I7)")
        newest = self._tables.newest(world.chain)
        batch = self._tables.stored(world.chain, newest).commit.batch if newest.seq else -1
        if batch < world.acked - 1:
            raise ViolationError(f"{label}: batch {world.acked - 1} is acknowledged, the state ends at {batch} (I5)")

    def _trace(self, world: World) -> tuple[str, ...]:
        steps: list[str] = []
        mark = hash(world)
        while mark in self._reached:
            mark, label = self._reached[mark]
            steps.append(label)
        return tuple(reversed(steps))
