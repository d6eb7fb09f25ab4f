"""`pyflink.datastream.checkpointing_mode`'s names that varvite has."""

from varvite.spark_integration.options.checkpoint_config import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
