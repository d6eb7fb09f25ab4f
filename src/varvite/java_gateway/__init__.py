"""`pyflink.java_gateway`'s names, which say when they are used that there is no Java object of Flink's."""

from typing import Any

from varvite.spark_integration.options.absent import NO_FLINK, absent

__all__ = ["get_gateway"]

get_gateway: Any = absent("get_gateway", NO_FLINK)
