"""`pyflink.datastream.output_tag`'s names."""

from varve.spark_integration.output_tag import OutputTag

__all__ = ["OutputTag"]
