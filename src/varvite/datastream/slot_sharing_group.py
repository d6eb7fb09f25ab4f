"""`pyflink.datastream.slot_sharing_group`'s names."""

from varvite.spark_integration.options.flink_values import MemorySize, SlotSharingGroup

__all__ = ["MemorySize", "SlotSharingGroup"]
