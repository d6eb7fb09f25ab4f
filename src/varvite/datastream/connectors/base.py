"""`pyflink.datastream.connectors.base`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.connectors.sink import Sink as VarviteSink
from varvite.spark_integration.connectors.sources.stream_source import StreamSource
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = ["DeliveryGuarantee", "Sink", "Source", "StreamTransformer", "SupportsPreprocessing"]

Sink: Any = absent("Sink", WRITE_WITH_SPARK)
Sink.register(VarviteSink)
Source: Any = absent("Source", READ_WITH_SPARK)
Source.register(StreamSource)
StreamTransformer: Any = absent("StreamTransformer", BOTH_WITH_SPARK)
SupportsPreprocessing: Any = absent("SupportsPreprocessing", BOTH_WITH_SPARK)
