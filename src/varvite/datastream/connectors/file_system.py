"""`pyflink.datastream.connectors.file_system`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Duration
from varvite.common.serialization import BulkWriterFactory, Encoder, RowDataBulkWriterFactory
from varvite.datastream.connectors.base import Sink, Source, StreamTransformer, SupportsPreprocessing
from varvite.datastream.functions import SinkFunction
from varvite.spark_integration.connectors.files.row_file_sink import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    StreamingFileSink,
)
from varvite.spark_integration.connectors.files.row_file_sink import RowFileSink as FileSink
from varvite.spark_integration.connectors.sources.text_files import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
    StreamFormat,
)
from varvite.spark_integration.options.absent import READ_WITH_SPARK, WRITE_WITH_SPARK, absent

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

BulkFormat: Any = absent("BulkFormat", READ_WITH_SPARK)
FileCompactStrategy: Any = absent("FileCompactStrategy", WRITE_WITH_SPARK)
FileCompactor: Any = absent("FileCompactor", WRITE_WITH_SPARK)
