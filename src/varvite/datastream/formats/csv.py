"""`pyflink.datastream.formats.csv`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.types.contract import TypeInformation
from varvite.common.serialization import (
    BulkWriterFactory,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    DeserializationSchema,
    RowDataBulkWriterFactory,
    SerializationSchema,
)
from varvite.datastream.connectors.file_system import StreamFormat
from varvite.spark_integration.options.absent import NO_SCHEMAS, absent

__all__ = [
    "BulkWriterFactory",
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
    "DeserializationSchema",
    "RowDataBulkWriterFactory",
    "SerializationSchema",
    "StreamFormat",
    "TypeInformation",
]

CsvBulkWriters: Any = absent("CsvBulkWriters", NO_SCHEMAS)
CsvReaderFormat: Any = absent("CsvReaderFormat", NO_SCHEMAS)
CsvSchema: Any = absent("CsvSchema", NO_SCHEMAS)
CsvSchemaBuilder: Any = absent("CsvSchemaBuilder", NO_SCHEMAS)
