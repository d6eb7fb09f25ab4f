"""`pyflink.common.configuration`'s names that varvite has."""

from varvite.spark_integration.options.configuration import Configuration

__all__ = [
    "Configuration",
]
