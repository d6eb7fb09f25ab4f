"""`pyflink.common.serialization`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.elements.formats.avro_rows import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from varvite.spark_integration.elements.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from varvite.spark_integration.elements.formats.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from varvite.spark_integration.elements.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from varvite.spark_integration.options.absent import WRITE_WITH_SPARK, absent

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
