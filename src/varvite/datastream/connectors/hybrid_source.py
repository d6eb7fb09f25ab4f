"""`pyflink.datastream.connectors.hybrid_source`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.datastream.connectors.base import Source
from varvite.spark_integration.options.absent import READ_WITH_SPARK, absent

__all__ = ["HybridSource", "HybridSourceBuilder", "Source"]

HybridSource: Any = absent("HybridSource", READ_WITH_SPARK)
HybridSourceBuilder: Any = absent("HybridSourceBuilder", READ_WITH_SPARK)
