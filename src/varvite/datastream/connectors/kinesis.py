"""`pyflink.datastream.connectors.kinesis`' names; what cannot be used says so when it is used."""

from typing import Any

from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper
from varvite.datastream.connectors.base import Sink
from varvite.datastream.functions import SourceFunction
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "DeserializationSchema",
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisShardAssigner",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "PartitionKeyGenerator",
    "SerializationSchema",
    "Sink",
    "SourceFunction",
    "WatermarkTracker",
]

FlinkKinesisConsumer: Any = absent("FlinkKinesisConsumer", READ_WITH_SPARK)
KinesisDeserializationSchema: Any = absent("KinesisDeserializationSchema", BOTH_WITH_SPARK)
KinesisFirehoseSink: Any = absent("KinesisFirehoseSink", WRITE_WITH_SPARK)
KinesisFirehoseSinkBuilder: Any = absent("KinesisFirehoseSinkBuilder", WRITE_WITH_SPARK)
KinesisShardAssigner: Any = absent("KinesisShardAssigner", BOTH_WITH_SPARK)
KinesisStreamsSink: Any = absent("KinesisStreamsSink", WRITE_WITH_SPARK)
KinesisStreamsSinkBuilder: Any = absent("KinesisStreamsSinkBuilder", WRITE_WITH_SPARK)
PartitionKeyGenerator: Any = absent("PartitionKeyGenerator", BOTH_WITH_SPARK)
WatermarkTracker: Any = absent("WatermarkTracker", BOTH_WITH_SPARK)
