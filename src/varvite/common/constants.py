"""`pyflink.common.constants`' names."""

from varvite.spark_integration.options.flink_values import DEFAULT_OUTPUT_TAG, MAX_LONG_VALUE, MIN_LONG_VALUE

__all__ = ["DEFAULT_OUTPUT_TAG", "MAX_LONG_VALUE", "MIN_LONG_VALUE"]
