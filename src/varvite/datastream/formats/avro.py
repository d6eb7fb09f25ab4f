"""`pyflink.datastream.formats.avro`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.types.contract import TypeInformation
from varvite.common.io import InputFormat
from varvite.common.serialization import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    BulkWriterFactory,
    DeserializationSchema,
    SerializationSchema,
)
from varvite.datastream.utils import ResultTypeQueryable
from varvite.spark_integration.options.absent import NO_SCHEMAS, absent

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "BulkWriterFactory",
    "DeserializationSchema",
    "GenericRecordAvroTypeInfo",
    "InputFormat",
    "ResultTypeQueryable",
    "SerializationSchema",
    "TypeInformation",
]

AvroBulkWriters: Any = absent("AvroBulkWriters", NO_SCHEMAS)
AvroInputFormat: Any = absent("AvroInputFormat", NO_SCHEMAS)
AvroSchema: Any = absent("AvroSchema", NO_SCHEMAS)
GenericRecordAvroTypeInfo: Any = absent("GenericRecordAvroTypeInfo", NO_SCHEMAS)
