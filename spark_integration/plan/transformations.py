"""The graph of a program: one frozen transformation for each call on a stream, linked to those that it reads.

A stream is its last transformation. Names, uids and parallelism may be set later, as in PyFlink. So they are kept
beside the graph (`GraphSettings`), and take effect when the job starts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.pickling import PickledFunction
    from varvite.spark_integration.plan.function_chain import StepKind
    from varvite.spark_integration.plan.operator import OperatorPlan


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column with the event time: one that `with_watermark` named, here or in Spark, or that a function filled."""

    column: str | None
    """None: the stream has a watermark, but no column with the event time any more."""
    delay_ms: int | None
    """Distance of the watermark behind the largest event time; None: there is no watermark, or it is Spark's."""
    spark_watermarks: int = 0
    """Number of `withWatermark` calls in the plan of the DataFrame: Spark computes the watermark. 0: it is ours."""

    @property
    def has_watermark(self) -> bool:
        """Does a watermark follow it?"""
        return self.delay_ms is not None or self.spark_watermarks > 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Transformation:
    """A node of the graph; two are the same only if they are the same object."""

    kind: str
    """The operation: source, map, process and so on."""
    inputs: tuple[Transformation, ...] = ()
    elements: ElementType
    """Its output."""

    def lineage(self) -> Iterator[Transformation]:
        """This node and all before it, each once, inputs before the nodes that read them."""
        seen: set[int] = set()
        yield from self._lineage(seen)

    def _lineage(self, seen: set[int]) -> Iterator[Transformation]:
        if id(self) in seen:
            return
        seen.add(id(self))
        for node in self.inputs:
            yield from node._lineage(seen)  # noqa: SLF001  of the same class
        yield self


@dataclass(frozen=True, kw_only=True, eq=False)
class DataFrameSource(Transformation):
    """The rows of a streaming DataFrame."""

    kind: str = "source"
    dataframe: DataFrame = field(repr=False)
    event_time: EventTime | None
    """Named by `DataFrame.withWatermark`, or the records' own."""
    is_bounded: bool = False
    """It ends, and all of it comes in one batch."""
    interval_ms: int | None = None
    """Time between two batches, unless the job says it; None: as soon as may be."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectionSource(Transformation):
    """Elements that the program itself holds: a source that ends."""

    is_bounded: ClassVar[bool] = True
    kind: str = "source"
    table: pa.Table = field(repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTransformation(Transformation):
    """A stateless function."""

    step: StepKind
    function: PickledFunction
    watermark_delay_ms: int | None = None
    """For a step that assigns timestamps: distance of the watermark; None: no watermark."""
    idle_timeout_ms: int | None = None
    """For such a step: time without elements after which its input is idle; None: it never is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UnionTransformation(Transformation):
    """The elements of all inputs, which are of the same type."""

    kind: str = "union"


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputsTransformation(Transformation):
    """The end of several streams that one query writes; its elements are those of all, side by side."""

    kind: str = "outputs"


@dataclass(frozen=True, slots=True)
class KeyFunction:
    """A computed key."""

    function: PickledFunction
    key_type: WireType


@dataclass(frozen=True, slots=True)
class StreamKey:
    """The key of a stream."""

    columns: tuple[str, ...]
    """Columns of the key, or the one column of a computed key. Empty: the elements have no key, it is null."""
    function: KeyFunction | None
    """None: the key is in the stream's own columns."""
    key_type: WireType

    @staticmethod
    def of_none() -> StreamKey:
        """The key of a stream without keys: a column that is always null."""
        return StreamKey((), None, as_type(Types.LONG()))


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyedTransformation(Transformation):
    """A stateful operator; its keying is part of it."""

    key: KeyFunction | None
    """None: the plan's key columns are columns of the input."""
    plan: OperatorPlan
    """The operator on the elements of the node before it; uid, name and parallelism are in the settings."""
    event_time_column: str | None = None
    """Output column with the event time; None: that of the input."""
    connected: tuple[StreamKey, ...] = ()
    """The key of each input of an operator on connected streams; else empty."""
    late_output: str | None = None
    """Id of the side output of late elements, which keep their type."""
    is_update: bool = False
    """Spark's output mode "Update" was given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SideOutputTransformation(Transformation):
    """The elements that a stateful operator yields with an `OutputTag`."""

    kind: str = "side_output"
    tag_id: str


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The names and the parallelism of a transformation."""

    uid: str | None = None
    name: str | None = None
    parallelism: int | None = None


class GraphSettings:
    """The settings of all transformations of an environment."""

    def __init__(self, settings: dict[Transformation, NodeSettings] | None = None, parallelism: int = 1) -> None:
        """Begin without settings, or share those of others; `parallelism`: of operators that have none."""
        self._settings: dict[Transformation, NodeSettings] = {} if settings is None else settings
        self._parallelism = parallelism

    def with_parallelism(self, parallelism: int) -> GraphSettings:
        """These settings for a job with a parallelism."""
        return GraphSettings(self._settings, parallelism)

    def of(self, node: Transformation) -> NodeSettings:
        """The settings of a node."""
        return self._settings.get(node, NodeSettings())

    def update(self, node: Transformation, **changes: Any) -> None:
        """Change settings of a node."""
        self._settings[node] = replace(self.of(node), **changes)

    def parallelism_of(self, operator: KeyedTransformation) -> int:
        """The partitions of a stateful operator. Raises as `partitions_of`."""
        return self.chosen_parallelism_of(operator) or self._parallelism

    def chosen_parallelism_of(self, operator: KeyedTransformation) -> int | None:
        """The partitions of a stateful operator; None: as many as the job has. Raises as `partitions_of`."""
        return self.partitions_of(operator) or operator.plan.parallelism or self.of(operator).parallelism

    def partitions_of(self, operator: KeyedTransformation) -> int | None:
        """The partitions among which `partition_custom` chooses: as many as the step behind it has.

        None: the operator is another one.

        Raises:
            InvalidRequestError: Steps behind it have different numbers.
        """
        if not operator.plan.by_partition:
            return None
        nodes = [node for node in self._settings if node is operator or _is_step_behind(node, operator)]
        numbers = {number for node in nodes if (number := self.of(node).parallelism)}
        if len(numbers) > 1:
            raise InvalidRequestError(
                f"functions with parallelism {sorted(numbers)} follow one partition_custom, which chooses one of so "
                "many partitions: call partition_custom for each of them, or give them the same set_parallelism"
            )
        return next(iter(numbers), self._parallelism)


def _is_step_behind(node: Transformation, operator: KeyedTransformation) -> bool:
    return isinstance(node, StepTransformation) and node.inputs[0] is operator


def sources_of(end: Transformation) -> list[DataFrameSource | CollectionSource]:
    """The sources that lead to a transformation, in order."""
    return [node for node in end.lineage() if isinstance(node, DataFrameSource | CollectionSource)]


def may_share_query(end: Transformation) -> bool:
    """Can one query write this end and others of the same sources? Not with stateful operators or Spark's watermarks.

    Spark has one watermark for a query, and each of several inputs needs its own.
    """
    nodes = list(end.lineage())
    times = [node.event_time for node in nodes if isinstance(node, DataFrameSource)]
    is_stateless = not any(isinstance(node, KeyedTransformation) for node in nodes)
    return is_stateless and not any(time is not None and time.spark_watermarks for time in times)


def operator_uids(end: Transformation, settings: GraphSettings) -> dict[Transformation, str]:
    """The uid of every stateful operator that leads to `end`: the user's, else one made from the operator's place.

    The place is the sequence of stateful operators before it: stateless functions and `partition_custom` do not change
    it.

    Raises:
        InvalidRequestError: Two operators have the same uid.
    """
    hashes: dict[Transformation, str] = {}
    uids: dict[Transformation, str] = {}
    taken: dict[str, int] = {}
    for node in end.lineage():
        above = "|".join(hashes[i] for i in node.inputs)
        if not isinstance(node, KeyedTransformation):
            hashes[node] = above
            continue
        place = hashlib.sha256(f"{node.kind}({above})".encode()).hexdigest()
        hashes[node] = above if node.plan.by_partition else place
        uid = settings.of(node).uid
        if uid is None:
            uid = f"{node.kind}-{place[:12]}"
            taken[uid] = taken.get(uid, 0) + 1
            uid = uid if taken[uid] == 1 else f"{uid}-{taken[uid]}"
        if uid in uids.values():
            raise InvalidRequestError(
                f"two operators have the uid {uid!r}; it names the state, so give each its own", operator=uid
            )
        uids[node] = uid
    return uids
