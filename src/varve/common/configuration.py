"""`pyflink.common.configuration`'s names that varve has."""

from varve.spark_integration.configuration import Configuration

__all__ = [
    "Configuration",
]
