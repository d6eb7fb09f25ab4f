"""`pyflink.common.execution_config`'s names."""

from varvite.spark_integration.options.execution_config import ExecutionConfig

__all__ = ["ExecutionConfig"]
