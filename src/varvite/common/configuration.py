"""`pyflink.common.configuration`'s names."""

from varvite.spark_integration.options.configuration import Configuration

__all__ = ["Configuration"]
