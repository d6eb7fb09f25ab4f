"""Pickles a user's function once on the driver, for the state workers to load once each.

The bytes are in a Spark broadcast, which a pump reads only if its worker asks for them. The broadcast variables that
the function refers to are kept beside it: pickled with the pump, Spark sends them with every batch, which it would not
do for those inside the bytes.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext, cloudpickle

from varvite.spark_integration.functions.checkpointed import refuse_checkpointed
from varvite.spark_integration.messages.protocol import BroadcastValue, FunctionPackage
from varvite.storage.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function as bytes, and the broadcast variables that it refers to, by id."""

    function: bytes
    broadcasts: dict[int, Any]


class ShippedFunction:
    """A pickled function and its broadcast variables, on the driver and in the pump."""

    def __init__(self, function_hash: str, body: Any, broadcasts: dict[int, Any]) -> None:
        """Keep the parts.

        Args:
            function_hash: sha256 of the pickled function, hexadecimal.
            body: The pickled function: a broadcast of bytes, or the bytes themselves.
            broadcasts: The broadcast variables that the function refers to, by id.
        """
        self.function_hash = function_hash
        self._body = body
        self._broadcasts = broadcasts

    def package(self) -> FunctionPackage:
        """The package from which a worker unpickles the function; called in the pump."""
        body = self._body if isinstance(self._body, bytes) else self._body.value
        values = tuple(_broadcast_value(i, b) for i, b in self._broadcasts.items())
        return FunctionPackage(function=body, broadcasts=values)

    def destroy(self) -> None:
        """Free the broadcast of the function when the query has ended; the user's own broadcasts stay."""
        if not isinstance(self._body, bytes):
            self._body.destroy()


def pickle_with_broadcasts(context: SparkContext | None, function: Any) -> PickledFunction:
    """Pickle a function on the driver, with the broadcast variables that it refers to."""
    if context is None:
        return PickledFunction(cloudpickle.dumps(function), {})
    registry: Any = context._pickled_broadcast_vars  # noqa: SLF001  PySpark adds the broadcasts that it pickles
    before = set(registry)
    registry.clear()
    try:
        pickled = cloudpickle.dumps(function)
        broadcasts = {int(b._jbroadcast.id()): b for b in registry}  # noqa: SLF001  their only name in a worker
    finally:
        registry.clear()
        for broadcast in before:
            registry.add(broadcast)
    return PickledFunction(pickled, broadcasts)


def ship(context: SparkContext | None, pickled: PickledFunction) -> ShippedFunction:
    """Make a pickled function ready for the pumps; without a SparkContext the bytes travel in each task's closure."""
    digest = hashlib.sha256(pickled.function).hexdigest()
    body = pickled.function if context is None else context.broadcast(pickled.function)
    return ShippedFunction(digest, body, pickled.broadcasts)


def _broadcast_value(broadcast_id: int, broadcast: Any) -> BroadcastValue:
    path = getattr(broadcast, "_path", None)
    context = getattr(broadcast, "_sc", None)
    # On the driver, the file of an encrypted broadcast is encrypted.
    if path is not None and not (context is not None and context._encryption_enabled):  # noqa: SLF001  there is no getter
        return BroadcastValue(broadcast_id=broadcast_id, path=path)
    return BroadcastValue(broadcast_id=broadcast_id, pickled=pickle.dumps(broadcast.value, pickle.HIGHEST_PROTOCOL))


def pickle_step(function: Any, caller: str) -> PickledFunction:
    """A stateless function as bytes; `caller` names the method that takes it.

    Raises:
        InvalidRequestError: It cannot be pickled, or is a `CheckpointedFunction`.
    """
    refuse_checkpointed([function], caller)
    try:
        return pickle_with_broadcasts(SparkContext._active_spark_context, function)  # noqa: SLF001  there is no other way
    except Exception as error:  # user objects may raise anything while they are pickled
        raise InvalidRequestError(
            f"the function of {caller} cannot be sent to the workers: {error}; make connections, locks and sessions in "
            "open(), not before"
        ) from error
