"""`DataStreamSink`: what `DataStream.print` gives, for PyFlink's signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varve.spark_integration.api.environment import StreamExecutionEnvironment
    from varve.spark_integration.plan.transformations import Transformation


class DataStreamSink:
    """The end of a stream. Its settings have no effect: a sink has no state, and runs on the driver."""

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._transformation = transformation

    def name(self, name: str) -> DataStreamSink:
        """For PyFlink's signature."""
        del name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """For PyFlink's signature."""
        del uid
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """For PyFlink's signature."""
        del parallelism
        return self
