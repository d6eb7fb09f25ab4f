"""`pyflink.common.serialization`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.options.absent import NO_SCHEMAS, absent

__all__ = [
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]

BulkWriterFactory: Any = absent("BulkWriterFactory", NO_SCHEMAS)
ByteArraySchema: Any = absent("ByteArraySchema", NO_SCHEMAS)
DeserializationSchema: Any = absent("DeserializationSchema", NO_SCHEMAS)
Encoder: Any = absent("Encoder", NO_SCHEMAS)
RowDataBulkWriterFactory: Any = absent("RowDataBulkWriterFactory", NO_SCHEMAS)
RowFieldExtractorSchema: Any = absent("RowFieldExtractorSchema", NO_SCHEMAS)
SerializationSchema: Any = absent("SerializationSchema", NO_SCHEMAS)
SimpleStringSchema: Any = absent("SimpleStringSchema", NO_SCHEMAS)
