"""States with TTL for the conformance suite, and ways to say what it is."""

from __future__ import annotations

from typing import Any

from tests.jobs.living_job import Average
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig

TTL_MS = 100


def ttl(ttl_ms: int = TTL_MS) -> Any:
    """A builder."""
    return StateTtlConfig.new_builder(Time.milliseconds(ttl_ms))


def with_config(descriptor: StateDescriptor, config: StateTtlConfig | None) -> StateDescriptor:
    """The descriptor with this TTL."""
    if config is not None:
        descriptor.enable_time_to_live(config)
    return descriptor


def value(config: StateTtlConfig | None, name: str = "value") -> StateDescriptor:
    return with_config(ValueStateDescriptor(name, "string"), config)


def items(config: StateTtlConfig | None) -> StateDescriptor:
    return with_config(ListStateDescriptor("items", "bigint"), config)


def entries(config: StateTtlConfig | None) -> StateDescriptor:
    return with_config(MapStateDescriptor("entries", "string", "array<int>"), config)


def total(config: StateTtlConfig | None) -> StateDescriptor:
    return with_config(ReducingStateDescriptor("total", lambda a, b: a + b, "bigint"), config)


def average(config: StateTtlConfig | None) -> StateDescriptor:
    return with_config(AggregatingStateDescriptor("average", Average(), "struct<n:bigint,sum:bigint>"), config)
