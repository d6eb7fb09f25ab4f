"""`pyflink.datastream.time_characteristic`'s names, of Flink 1."""

from varvite.spark_integration.options.flink_values import TimeCharacteristic

__all__ = ["TimeCharacteristic"]
