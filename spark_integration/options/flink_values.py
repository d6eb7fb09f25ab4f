"""PyFlink's plain values that settings take, and its hints; varvite has no use for most of them.

A hint says how Flink should place or chain steps. It changes no result, so a call of one is logged and has no effect.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

_log: Final = logging.getLogger(__name__)
MAX_LONG_VALUE: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN_LONG_VALUE: Final = -MAX_LONG_VALUE - 1
DEFAULT_OUTPUT_TAG: Final = ""
"""Id of the main output in PyFlink."""


def log_without_effect(call: str, reason: str) -> None:
    """Log that a call of PyFlink's has no effect."""
    _log.info("%s has no effect in varvite: %s", call, reason)


class InputDependencyConstraint(enum.Enum):
    """Conditions for the start of a task of Flink; nothing takes one."""

    ANY = 0
    ALL = 1


class ExecutionMode(enum.Enum):
    """Ways in which Flink 1 passes on the elements of a batch program; without effect."""

    PIPELINED = 0
    PIPELINED_FORCED = 1
    BATCH = 2
    BATCH_FORCED = 3


class DeliveryGuarantee(enum.Enum):
    """Guarantees of a sink when something fails; PyFlink's numbers."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class TimeCharacteristic(enum.Enum):
    """Kinds of time of a program, which Flink 1 had to be told."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2


@dataclass(frozen=True, order=True)
class MemorySize:
    """A size of memory."""

    bytes_size: int = 0

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size in MiB."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """The size in bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """The size in KiB, rounded down, as in the next three."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """The size in MiB."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """The size in GiB."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """The size in TiB."""
        return self.bytes_size >> 40


@dataclass(frozen=True)
class SlotSharingGroup:
    """The resources of a slot of Flink: a hint, for Spark's executors have no slots of their own size."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict[str, float], hash=False)

    def get_name(self) -> str:
        """The name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """The cores that were set."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """The memory that was set, as do the next two."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """The memory that was set."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """The memory that was set."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Name → amount."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """A builder."""
        return SlotSharingGroup.Builder(SlotSharingGroup(name))

    class Builder:
        """Builds a group."""

        def __init__(self, group: SlotSharingGroup) -> None:
            self._group = group

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the cores."""
            return self._with(cpu_cores=cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set a memory, as do the next five; MB are MiB."""
            return self._with(task_heap_memory=task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set a memory."""
            return self._with(task_heap_memory=MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set a memory."""
            return self._with(task_off_heap_memory=task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set a memory."""
            return self._with(task_off_heap_memory=MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set a memory."""
            return self._with(managed_memory=managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set a memory."""
            return self._with(managed_memory=MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set an amount of another resource."""
            return self._with(external_resources={**self._group.external_resources, name: value})

        def build(self) -> SlotSharingGroup:
            """The group."""
            return self._group

        def _with(self, **changes: Any) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, **changes)
            return self


class RestartStrategyConfiguration:
    """A strategy of Flink for restarts; nothing takes one. A query is restarted by what runs its driver."""

    def get_description(self) -> str:
        """The strategy in words."""
        return str(self)


class RestartStrategies:
    """Makes strategies; spans of time are milliseconds, or a `timedelta`."""

    @dataclass(frozen=True)
    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """No restart."""

    @dataclass(frozen=True)
    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The restart that the cluster has."""

    @dataclass(frozen=True)
    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A number of restarts with a pause."""

        restart_attempts: int
        delay_between_attempts_interval: timedelta | int

        def get_restart_attempts(self) -> int:
            """The number."""
            return self.restart_attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """The pause."""
            return _span(self.delay_between_attempts_interval)

    @dataclass(frozen=True)
    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A number of restarts in a span of time, with a pause."""

        max_failure_rate: int
        failure_interval: timedelta | int
        delay_between_attempts_interval: timedelta | int

        def get_max_failure_rate(self) -> int:
            """The number."""
            return self.max_failure_rate

        def get_failure_interval(self) -> timedelta:
            """The span."""
            return _span(self.failure_interval)

        def get_delay_between_attempts_interval(self) -> timedelta:
            """The pause."""
            return _span(self.delay_between_attempts_interval)

    @staticmethod
    def no_restart() -> RestartStrategies.NoRestartStrategyConfiguration:
        """No restart."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategies.FallbackRestartStrategyConfiguration:
        """The restart that the cluster has."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int
    ) -> RestartStrategies.FixedDelayRestartStrategyConfiguration:
        """A number of restarts, with a pause between them."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> RestartStrategies.FailureRateRestartStrategyConfiguration:
        """A number of restarts within a span, with a pause between them."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)


def _span(span: timedelta | int) -> timedelta:
    return span if isinstance(span, timedelta) else timedelta(milliseconds=span)
