"""`pyflink.common.serialization`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.options.absent import NO_SCHEMAS, absent

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

AvroRowDeserializationSchema: Any = absent("AvroRowDeserializationSchema", NO_SCHEMAS)
AvroRowSerializationSchema: Any = absent("AvroRowSerializationSchema", NO_SCHEMAS)
BulkWriterFactory: Any = absent("BulkWriterFactory", NO_SCHEMAS)
ByteArraySchema: Any = absent("ByteArraySchema", NO_SCHEMAS)
CsvRowDeserializationSchema: Any = absent("CsvRowDeserializationSchema", NO_SCHEMAS)
CsvRowSerializationSchema: Any = absent("CsvRowSerializationSchema", NO_SCHEMAS)
DeserializationSchema: Any = absent("DeserializationSchema", NO_SCHEMAS)
Encoder: Any = absent("Encoder", NO_SCHEMAS)
JsonRowDeserializationSchema: Any = absent("JsonRowDeserializationSchema", NO_SCHEMAS)
JsonRowSerializationSchema: Any = absent("JsonRowSerializationSchema", NO_SCHEMAS)
RowDataBulkWriterFactory: Any = absent("RowDataBulkWriterFactory", NO_SCHEMAS)
RowFieldExtractorSchema: Any = absent("RowFieldExtractorSchema", NO_SCHEMAS)
SerializationSchema: Any = absent("SerializationSchema", NO_SCHEMAS)
SimpleStringSchema: Any = absent("SimpleStringSchema", NO_SCHEMAS)
