"""`pyflink.datastream.stream_execution_environment`'s names that varve has."""

from varve.spark_integration.api.environment import StreamExecutionEnvironment

__all__ = [
    "StreamExecutionEnvironment",
]
