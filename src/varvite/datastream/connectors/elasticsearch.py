"""`pyflink.datastream.connectors.elasticsearch`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.datastream.connectors.base import Sink
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, WRITE_WITH_SPARK, absent
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "FlushBackoffType",
    "Sink",
]

Elasticsearch6SinkBuilder: Any = absent("Elasticsearch6SinkBuilder", WRITE_WITH_SPARK)
Elasticsearch7SinkBuilder: Any = absent("Elasticsearch7SinkBuilder", WRITE_WITH_SPARK)
ElasticsearchEmitter: Any = absent("ElasticsearchEmitter", BOTH_WITH_SPARK)
ElasticsearchSink: Any = absent("ElasticsearchSink", WRITE_WITH_SPARK)
FlushBackoffType: Any = absent("FlushBackoffType", BOTH_WITH_SPARK)
