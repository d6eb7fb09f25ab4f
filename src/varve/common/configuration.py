"""`pyflink.common.configuration`'s names that varve has."""

from varve.spark_integration.options.configuration import Configuration

__all__ = [
    "Configuration",
]
