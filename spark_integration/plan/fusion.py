"""Fuses stateless transformations in a row into one step: their pickled functions, the key, and broadcast variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.spark_integration.plan.function_chain import KeyStep, Step
from varvite.spark_integration.plan.preparation import CHANGING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.spark_integration.functions.pickling import PickledFunction
    from varvite.spark_integration.plan.transformations import (
        GraphSettings,
        KeyedTransformation,
        KeyFunction,
        StepTransformation,
    )


def step_name(node: StepTransformation, settings: GraphSettings) -> str:
    """A step's name, for people."""
    return settings.of(node).name or node.kind


def fused_steps(nodes: Sequence[StepTransformation], settings: GraphSettings, *, is_followed: bool) -> tuple[Step, ...]:
    """The steps; each but the last converts its elements to their declared type, as if they had been sent.

    Args:
        nodes: The steps in order.
        settings: Their names.
        is_followed: A key function reads the output of the last one.
    """
    conforming = len(nodes) - (0 if is_followed else 1)
    return tuple(
        Step(
            node.step,
            step_name(node, settings),
            node.function.function,
            node.elements if place < conforming and node.step in CHANGING else None,
        )
        for place, node in enumerate(nodes)
    )


def key_step(key: KeyFunction | None, operator: KeyedTransformation | None, settings: GraphSettings) -> KeyStep | None:
    """The key function of an operator, for the workers. Raises as `GraphSettings.partitions_of`."""
    if key is None:
        return None
    return KeyStep(key.function.function, key.key_type, settings.partitions_of(operator) if operator else None)


def broadcasts_of(functions: Iterable[PickledFunction]) -> dict[int, object]:
    """The broadcast variables that these functions refer to, by id."""
    return {i: b for function in functions for i, b in function.broadcasts.items()}
