"""`pyflink.datastream.execution_mode`'s names that varve has."""

from varve.spark_integration.options.configuration import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
