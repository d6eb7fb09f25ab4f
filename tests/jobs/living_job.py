"""A job that lives in one of seven ways, and the states that the conformance suite of keyed state gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.mean import Mean
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.functions import AggregateFunction
from varvite.changelog.types.factory import Types

if TYPE_CHECKING:
    from pathlib import Path

PENDING, FOLDED, LOG, SNAPSHOT, SWITCHED = "pending", "folded", "changelog on", "changelog off", "backend switched"
CUT, CUT_LOG = "cut", "cut and changelog on"
LIVES = (PENDING, FOLDED, LOG, SNAPSHOT, SWITCHED, CUT, CUT_LOG)


class LivingJob(KeyedJob):
    """A job that does at each step what its way of life says."""

    def __init__(self, kind: str, life: str, directory: Path) -> None:
        super().__init__(kind, "off" if life == SNAPSHOT else "on", directory)
        self.life = life
        self._steps = 0

    def step(self) -> None:
        """The batch ends here, unless everything stays pending."""
        self._steps += 1
        if self.life == PENDING:
            return
        if self.life == CUT or (self.life == CUT_LOG and self._steps % 2):
            self.cut()
            return
        self.commit()
        if self.life == SWITCHED:
            self.materialize()
            self.crash(KINDS[(KINDS.index(self.kind) + 1) % len(KINDS)])
        elif self.life != FOLDED:
            if self.life == LOG and self._steps % 3 == 0:
                self.materialize()
            self.crash()


class Average(Mean):
    """Of integers: with an immutable accumulator; the result is of another type."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0


class Collect(AggregateFunction[int, list[int], str]):
    """With a mutable accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> str:
        accumulator.append(-1)  # what it is given does not alias state
        return ",".join(map(str, accumulator[:-1]))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


VALUE = ValueStateDescriptor("value", "string")
LIST = ListStateDescriptor("list", Types.LONG())
MAP = MapStateDescriptor("map", "bigint", "string")
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
AVERAGE = AggregatingStateDescriptor("average", Average(), Types.TUPLE(["long", "long"]))
COLLECT = AggregatingStateDescriptor("collect", Collect(), Types.LIST("int"))
