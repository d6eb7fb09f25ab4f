"""`pyflink.datastream.connectors.number_seq`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.datastream.connectors.base import Source
from varvite.spark_integration.options.absent import READ_WITH_SPARK, absent

__all__ = ["NumberSequenceSource", "Source"]

NumberSequenceSource: Any = absent("NumberSequenceSource", READ_WITH_SPARK)
