"""`pyflink.datastream.connectors.number_seq`'s names."""

from varvite.datastream.connectors.base import Source
from varvite.spark_integration.connectors.sources.numbers import NumberSequenceSource

__all__ = ["NumberSequenceSource", "Source"]
