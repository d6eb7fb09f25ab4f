"""`pyflink.datastream.stream_execution_environment`'s names that varvite has."""

from varvite.spark_integration.api.environment import StreamExecutionEnvironment

__all__ = [
    "StreamExecutionEnvironment",
]
