"""`pyflink.datastream.checkpointing_mode`'s names."""

from varvite.spark_integration.options.checkpoint_config import CheckpointingMode

__all__ = ["CheckpointingMode"]
