"""`pyflink.datastream.formats.parquet`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.common.serialization import BulkWriterFactory, RowDataBulkWriterFactory
from varvite.datastream.connectors.file_system import BulkFormat, StreamFormat
from varvite.datastream.formats.avro import AvroSchema
from varvite.spark_integration.options.absent import NO_SCHEMAS, absent
from varvite.spark_integration.options.configuration import Configuration

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "AvroSchema",
    "BulkFormat",
    "BulkWriterFactory",
    "Configuration",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "RowDataBulkWriterFactory",
    "StreamFormat",
]

AvroParquetReaders: Any = absent("AvroParquetReaders", NO_SCHEMAS)
AvroParquetWriters: Any = absent("AvroParquetWriters", NO_SCHEMAS)
ParquetBulkWriters: Any = absent("ParquetBulkWriters", NO_SCHEMAS)
ParquetColumnarRowInputFormat: Any = absent("ParquetColumnarRowInputFormat", NO_SCHEMAS)
