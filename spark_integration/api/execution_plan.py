"""The plan of a program as JSON, in the form of PyFlink's `get_execution_plan`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.plan.transformations import KeyedTransformation, UnionTransformation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.plan.transformations import GraphSettings, Transformation


def execution_plan(sinks: Sequence[tuple[Transformation, Sink]], settings: GraphSettings, parallelism: int) -> str:
    """The steps that lead to the sinks, each with those before it.

    Args:
        sinks: Each with the node that it reads.
        settings: Names and parallelism of the nodes.
        parallelism: Of the nodes that have none.
    """
    numbers: dict[Transformation, int] = {}
    nodes: list[dict[str, Any]] = []
    for end, _ in sinks:
        for node in end.lineage():
            if node in numbers or isinstance(node, UnionTransformation):
                continue
            numbers[node] = len(nodes) + 1
            pact = "Operator" if node.inputs else "Data Source"
            nodes.append(_node(node, pact, numbers, settings, parallelism))
    for end, sink in sinks:
        before = [{"id": numbers[node], "ship_strategy": "FORWARD", "side": "second"} for node in _without_unions(end)]
        name = f"Sink: {type(sink).__name__}"
        described = {"id": len(nodes) + 1, "type": name, "pact": "Data Sink", "contents": name}
        nodes.append({**described, "parallelism": 1, "predecessors": before})
    return json.dumps({"nodes": nodes})


def _node(
    node: Transformation, pact: str, numbers: dict[Transformation, int], settings: GraphSettings, parallelism: int
) -> dict[str, Any]:
    of_node = settings.of(node)
    name = of_node.name or node.kind
    described: dict[str, Any] = {"id": numbers[node], "type": name, "pact": pact, "contents": name}
    if isinstance(node, KeyedTransformation):
        strategy = "CUSTOM" if node.plan.by_partition else "HASH"
        described["parallelism"] = settings.with_parallelism(parallelism).parallelism_of(node)
    else:
        strategy = "FORWARD"
        described["parallelism"] = of_node.parallelism or parallelism
    if node.inputs:
        described["predecessors"] = [
            {"id": numbers[before], "ship_strategy": strategy, "side": "second"}
            for read in node.inputs
            for before in _without_unions(read)
        ]
    return described


def _without_unions(node: Transformation) -> Iterator[Transformation]:
    """The node, or the streams that it unites: a union is no step of its own."""
    if not isinstance(node, UnionTransformation):
        yield node
    else:
        for united in node.inputs:
            yield from _without_unions(united)
