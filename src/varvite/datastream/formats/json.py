"""`pyflink.datastream.formats.json`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.types.contract import TypeInformation
from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.spark_integration.options.absent import NO_SCHEMAS, absent

__all__ = [
    "DeserializationSchema",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "SerializationSchema",
    "TypeInformation",
]

JsonRowDeserializationSchema: Any = absent("JsonRowDeserializationSchema", NO_SCHEMAS)
JsonRowSerializationSchema: Any = absent("JsonRowSerializationSchema", NO_SCHEMAS)
