"""`pyflink.datastream.execution_mode`'s names that varvite has."""

from varvite.spark_integration.options.configuration import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
