"""`pyflink.datastream.formats.json`'s names; what cannot be used says so when it is used."""

from varvite.changelog.types.contract import TypeInformation
from varvite.common.serialization import (
    DeserializationSchema,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    SerializationSchema,
)

__all__ = [
    "DeserializationSchema",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "SerializationSchema",
    "TypeInformation",
]
