"""`pyflink.datastream.utils`' names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.row import Row, RowKind
from varvite.changelog.types.collections import BasicArrayType as BasicArrayTypeInfo
from varvite.changelog.types.collections import ListType as ListTypeInfo
from varvite.changelog.types.collections import MapType as MapTypeInfo
from varvite.changelog.types.collections import ObjectArrayType as ObjectArrayTypeInfo
from varvite.changelog.types.collections import PrimitiveArrayType as PrimitiveArrayTypeInfo
from varvite.changelog.types.composites import TupleType as TupleTypeInfo
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.common.typeinfo import ExternalTypeInfo
from varvite.spark_integration.elements.flink_types import RowTypeInfo
from varvite.spark_integration.options.absent import NO_JAVA, absent
from varvite.spark_integration.options.configuration import Configuration

__all__ = [
    "BasicArrayTypeInfo",
    "Configuration",
    "ExternalTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PrimitiveArrayTypeInfo",
    "ResultTypeQueryable",
    "Row",
    "RowKind",
    "RowTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]

ResultTypeQueryable: Any = absent("ResultTypeQueryable", NO_JAVA)
