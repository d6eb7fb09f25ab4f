"""`pyflink.common.typeinfo`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.types.collections import BasicArrayType as BasicArrayTypeInfo
from varvite.changelog.types.collections import ListType as ListTypeInfo
from varvite.changelog.types.collections import MapType as MapTypeInfo
from varvite.changelog.types.collections import ObjectArrayType as ObjectArrayTypeInfo
from varvite.changelog.types.collections import PickledType as PickledBytesTypeInfo
from varvite.changelog.types.collections import PrimitiveArrayType as PrimitiveArrayTypeInfo
from varvite.changelog.types.composites import TupleType as TupleTypeInfo
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.changelog.types.times import InstantType as InstantTypeInfo
from varvite.changelog.types.times import SqlDateType as DateTypeInfo
from varvite.changelog.types.times import SqlTimestampType as TimestampTypeInfo
from varvite.changelog.types.times import SqlTimeType as TimeTypeInfo
from varvite.spark_integration.elements.flink_types import BasicType, BasicTypeInfo, RowTypeInfo, SqlTimeTypeInfo
from varvite.spark_integration.options.absent import NO_JAVA, absent

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]

ExternalTypeInfo: Any = absent("ExternalTypeInfo", NO_JAVA)
LocalTimeTypeInfo: Any = absent("LocalTimeTypeInfo", NO_JAVA)
