"""Adds stateful operators to the graph: their key, their plan, and the node. Knows no streams.

Each function checks at the call what can be checked there, and returns the new node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.functions.broadcast import BroadcastFunction, KeyedBroadcastProcessFunction
from varvite.spark_integration.functions.checkpointed import refuse_checkpointed
from varvite.spark_integration.functions.connected import KeyedCoProcessFunction
from varvite.spark_integration.functions.keyed_operations import KeyedMap
from varvite.spark_integration.functions.pickling import pickle_step
from varvite.spark_integration.functions.stateless import KeySelector, Partitioner, PartitionSelector, check_function
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.plan.broadcast_input import BroadcastInput
from varvite.spark_integration.plan.operator import (
    UNNAMED,
    check_uid,
    column_named,
    elements_of,
    key_type_of,
    plan_operator,
)
from varvite.spark_integration.plan.transformations import (
    DataFrameSource,
    KeyedTransformation,
    KeyFunction,
    StepTransformation,
    StreamKey,
    operator_uids,
    sources_of,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.descriptors import MapStateDescriptor
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed_operations import KeyedFunction
    from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombine
    from varvite.spark_integration.plan.operator import InitialState, OperatorPlan
    from varvite.spark_integration.plan.transformations import GraphSettings, Transformation


def stream_key(before: Transformation, key: tuple[Any, ...], key_type: TypeLike | None = None) -> StreamKey:
    """The key that the arguments of `DataStream.key_by` describe.

    Args:
        before: The stream to be divided.
        key: Names of columns; or one key function, which a type may follow.
        key_type: Type of the keys that a function gives.

    Raises:
        InvalidRequestError: A column is missing, its type cannot be a key, or there is no such function.
    """
    if len(key) == 1 and isinstance(key[0], list | tuple):
        names: Any = key[0]
        key = tuple(names)  # as Spark's groupBy takes them
    if len(key) == 2 and key_type is None and not isinstance(key[0], str) and not isinstance(key[1], str):  # noqa: PLR2004
        key, key_type = key[:1], key[1]
    if len(key) != 1 or isinstance(key[0], str):
        if key_type is not None:
            raise InvalidRequestError("key_type goes with a key function; columns have their own types")
        return _column_key(before.elements, key)
    if not isinstance(key[0], KeySelector) and not callable(key[0]):
        raise InvalidRequestError(
            f"key_by takes names of columns or a function, not {key[0]!r}; make a column with withColumn first"
        )
    check_function(key[0], KeySelector, "key_by")
    kind = DynamicKeyType() if key_type is None else as_type(key_type)
    if not kind.hashable:
        raise InvalidRequestError(f"{kind} cannot be the type of a key: its values have no canonical bytes")
    return StreamKey((KEY_COLUMN,), KeyFunction(pickle_step(key[0], "key_by"), kind), kind)


def _column_key(elements: ElementType, columns: tuple[Any, ...]) -> StreamKey:
    columns = tuple([column_named(elements.schema, column) for column in columns])
    key_type = key_type_of(elements.schema, columns)
    if isinstance(elements, TypedElements):
        declared = elements.declared_types()
        wrong = [c for c in columns if as_type(elements.schema[c].dataType) != declared[c]]
        if wrong:
            raise InvalidRequestError(
                f"columns {wrong} hold values of {[str(declared[c]) for c in wrong]}, not of the key type {key_type}: "
                "give a key function, key_by(lambda value: ..., key_type)"
            )
    return StreamKey(columns, None, key_type)


def output_elements(output_type: Any, uid: str | None) -> ElementType:
    """The elements of an operator's output type; an operator that yields columns needs a uid.

    Raises:
        InvalidRequestError: The type is none, or the uid is missing.
    """
    if isinstance(output_type, (str, StructType)):
        check_uid(uid)
    return elements_of(output_type, uid)


def keyed_operator(  # noqa: PLR0913  the parts of an operator
    before: Transformation,
    key: StreamKey,
    kind: str,
    function: Any,
    elements: ElementType,
    *,
    uid: str | None = None,
    name: str | None = None,
    late_output: str | None = None,
    initial_state: InitialState | None = None,
    event_time_column: str | None = None,
    prepare: MapSideCombine | None = None,
) -> KeyedTransformation:
    """An operator on a keyed stream.

    Args:
        before: The stream.
        key: How the stream is divided.
        kind: Name of the operation.
        function: A keyed process function, the user's or a built-in one.
        elements: What it yields.
        uid: Name of the operator's state; None: it is made from the place in the graph when the job starts.
        name: For people.
        late_output: Id of the side output of late elements.
        initial_state: Rows that come with the job's first batch.
        event_time_column: Output column with the event time.
        prepare: Map-side combine of the input.

    Raises:
        InvalidRequestError: Any of these cannot be right.
    """
    schema = before.elements.schema
    if key.function is not None:
        # Any type that can be a key; the plan gets the key function's type below.
        schema = StructType([*schema.fields, StructField(KEY_COLUMN, StringType())])
    plan = plan_operator(
        schema,
        key.columns,
        function,
        elements.schema,
        uid=UNNAMED if uid is None else uid,
        name=name,
        event_time=event_time_before(before),
        prepare=prepare,
    )
    return KeyedTransformation(
        kind=kind,
        inputs=(before,),
        elements=elements,
        key=key.function,
        plan=replace(plan, key_type=key.key_type.type_string(), initial_state=initial_state),
        event_time_column=event_time_column,
        late_output=late_output,
    )


def connected_operator(
    inputs: tuple[Transformation, Transformation],
    keys: tuple[StreamKey | None, StreamKey | None],
    kind: str,
    function: KeyedFunction,
    elements: ElementType,
    uid: str | None,
) -> KeyedTransformation:
    """An operator on two connected streams; without keys one instance of the function gets all elements.

    Raises:
        InvalidRequestError: One of the streams has no key, or the keys have different types.
    """
    first, second = keys
    if (first is None) is not (second is None):
        raise InvalidRequestError(
            "one of the connected streams has keys and the other has none, so their elements cannot meet by key: "
            "connect(...).key_by(key1, key2), or key both before, or none"
        )
    first, second = first or StreamKey.of_none(), second or StreamKey.of_none()
    types = [key.key_type.type_string() for key in (first, second)]
    if types[0] != types[1]:
        raise InvalidRequestError(
            f"the streams' keys have different types, {types[0]} and {types[1]}, so no two of them are equal; give "
            "key functions and one key_type"
        )
    user = function.function
    has_timers = isinstance(user, KeyedCoProcessFunction) and type(user).on_timer is not KeyedCoProcessFunction.on_timer
    plan = replace(_connected_plan(function, elements, first, uid), has_timers=has_timers)
    return KeyedTransformation(
        kind=kind, inputs=inputs, elements=elements, key=None, connected=(first, second), plan=plan
    )


def broadcast_operator(
    inputs: tuple[Transformation, Transformation],
    key: StreamKey | None,
    function: Any,
    descriptors: tuple[MapStateDescriptor, ...],
    elements: ElementType,
    uid: str | None,
) -> KeyedTransformation:
    """An operator on a stream and a broadcast stream, the second of the inputs.

    Args:
        inputs: The streams.
        key: Key of the first one; None: it has none.
        function: The user's.
        descriptors: States that the broadcast elements change.
        elements: What the function yields.
        uid: Name of the operator's state, or None.

    Raises:
        InvalidRequestError: The function cannot be pickled.
    """
    first = StreamKey.of_none() if key is None else key
    has_timers = isinstance(function, KeyedBroadcastProcessFunction) and (
        type(function).on_timer is not KeyedBroadcastProcessFunction.on_timer
    )
    plan = replace(
        _connected_plan(BroadcastFunction(function, descriptors), elements, first, uid),
        has_timers=has_timers,
        broadcast=BroadcastInput(keyed=key is not None, rows=inputs[0].elements.schema),
    )
    return KeyedTransformation(
        kind="broadcast_process" if key is None else "keyed_broadcast_process",
        inputs=inputs,
        elements=elements,
        key=None,
        connected=(first, StreamKey((), None, first.key_type)),
        plan=plan,
    )


def _connected_plan(function: KeyedFunction, elements: ElementType, key: StreamKey, uid: str | None) -> OperatorPlan:
    schema = StructType([StructField(KEY_COLUMN, StringType())])
    plan = plan_operator(schema, (KEY_COLUMN,), function, elements.schema, uid=UNNAMED if uid is None else uid)
    return replace(plan, key_type=key.key_type.type_string())


def partitioned(before: Transformation, partitioner: Any, key_selector: Any) -> KeyedTransformation:
    """An operator that passes each element on in the partition that a partitioner chooses for its key.

    Raises:
        InvalidRequestError: They are not a partitioner and a key selector, or cannot be pickled.
    """
    check_function(partitioner, Partitioner, "partition_custom")
    check_function(key_selector, KeySelector, "partition_custom")
    refuse_checkpointed([partitioner, key_selector], "partition_custom")
    function = pickle_step(PartitionSelector(partitioner, key_selector), "partition_custom")
    number = as_type(Types.LONG())
    key = StreamKey((KEY_COLUMN,), KeyFunction(function, number), number)
    node = keyed_operator(before, key, "partition_custom", KeyedMap(same), before.elements)
    return replace(node, plan=replace(node.plan, by_partition=True))


def same(element: Any) -> Any:
    """The element itself."""
    return element


def set_uid(settings: GraphSettings, node: Transformation, uid: str) -> None:
    """Name the state of an operator. Raises `InvalidRequestError` if the uid is taken or cannot be one."""
    before = settings.of(node)
    settings.update(node, uid=check_uid(uid))
    try:
        operator_uids(node, settings)
    except InvalidRequestError:
        settings.update(node, uid=before.uid)
        raise


def event_time_before(end: Transformation) -> str | None:
    """Name of a stream's event time column; None if it has none, or its timestamps are not in a column."""
    has_one_source = len(sources_of(end)) == 1  # rows of several sources have their timestamps beside them
    for node in reversed(list(end.lineage())):
        if isinstance(node, KeyedTransformation) and node.event_time_column:
            return node.event_time_column
        if isinstance(node, StepTransformation) and node.step == "timestamps":
            return None  # the watermark follows the assigned timestamps, which are not a column
        if has_one_source and isinstance(node, DataFrameSource) and node.event_time is not None:
            return node.event_time.column
    return None


def has_watermark(end: Transformation) -> bool:
    """True if a watermark follows the stream's event times."""
    return any(
        (isinstance(node, DataFrameSource) and node.event_time is not None and node.event_time.has_watermark)
        or (isinstance(node, StepTransformation) and node.watermark_delay_ms is not None)
        for node in end.lineage()
    )
