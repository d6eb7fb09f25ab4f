"""`pyflink.datastream.output_tag`'s names."""

from varvite.spark_integration.functions.output_tag import OutputTag

__all__ = ["OutputTag"]
