"""`pyflink.datastream.output_tag`'s names."""

from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.flink_types import RowTypeInfo
from varvite.spark_integration.functions.output_tag import OutputTag

__all__ = ["OutputTag", "RowTypeInfo", "TypeInformation", "Types"]
