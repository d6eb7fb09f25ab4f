"""`pyflink.common.serialization`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.elements.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from varvite.spark_integration.options.absent import NO_SCHEMAS, WRITE_WITH_SPARK, absent

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "BulkWriterFactory",
    "ByteArraySchema",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Encoder",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]

BulkWriterFactory: Any = absent("BulkWriterFactory", WRITE_WITH_SPARK)
RowDataBulkWriterFactory: Any = absent("RowDataBulkWriterFactory", WRITE_WITH_SPARK)
AvroRowDeserializationSchema: Any = absent("AvroRowDeserializationSchema", NO_SCHEMAS)
AvroRowSerializationSchema: Any = absent("AvroRowSerializationSchema", NO_SCHEMAS)
CsvRowDeserializationSchema: Any = absent("CsvRowDeserializationSchema", NO_SCHEMAS)
CsvRowSerializationSchema: Any = absent("CsvRowSerializationSchema", NO_SCHEMAS)
JsonRowDeserializationSchema: Any = absent("JsonRowDeserializationSchema", NO_SCHEMAS)
JsonRowSerializationSchema: Any = absent("JsonRowSerializationSchema", NO_SCHEMAS)
