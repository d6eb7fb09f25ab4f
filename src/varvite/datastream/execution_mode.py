"""`pyflink.datastream.execution_mode`'s names."""

from varvite.spark_integration.options.configuration import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
