"""`pyflink.common.execution_mode`'s names, of Flink 1."""

from varvite.spark_integration.options.flink_values import ExecutionMode

__all__ = ["ExecutionMode"]
