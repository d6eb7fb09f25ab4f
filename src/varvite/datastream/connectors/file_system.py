"""`pyflink.datastream.connectors.file_system`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Duration
from varvite.common.serialization import BulkWriterFactory, Encoder, RowDataBulkWriterFactory
from varvite.datastream.connectors.base import Sink, Source, StreamTransformer, SupportsPreprocessing
from varvite.datastream.functions import SinkFunction
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "Duration",
    "Encoder",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "RowDataBulkWriterFactory",
    "Sink",
    "SinkFunction",
    "Source",
    "StreamFormat",
    "StreamTransformer",
    "StreamingFileSink",
    "SupportsPreprocessing",
]

BucketAssigner: Any = absent("BucketAssigner", BOTH_WITH_SPARK)
BulkFormat: Any = absent("BulkFormat", BOTH_WITH_SPARK)
DefaultRollingPolicy: Any = absent("DefaultRollingPolicy", BOTH_WITH_SPARK)
FileCompactStrategy: Any = absent("FileCompactStrategy", BOTH_WITH_SPARK)
FileCompactor: Any = absent("FileCompactor", BOTH_WITH_SPARK)
FileEnumeratorProvider: Any = absent("FileEnumeratorProvider", BOTH_WITH_SPARK)
FileSink: Any = absent("FileSink", WRITE_WITH_SPARK)
FileSource: Any = absent("FileSource", READ_WITH_SPARK)
FileSourceBuilder: Any = absent("FileSourceBuilder", READ_WITH_SPARK)
FileSplitAssignerProvider: Any = absent("FileSplitAssignerProvider", BOTH_WITH_SPARK)
OnCheckpointRollingPolicy: Any = absent("OnCheckpointRollingPolicy", BOTH_WITH_SPARK)
OutputFileConfig: Any = absent("OutputFileConfig", BOTH_WITH_SPARK)
RollingPolicy: Any = absent("RollingPolicy", BOTH_WITH_SPARK)
StreamFormat: Any = absent("StreamFormat", BOTH_WITH_SPARK)
StreamingFileSink: Any = absent("StreamingFileSink", WRITE_WITH_SPARK)
