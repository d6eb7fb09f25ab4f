"""`pyflink.datastream.checkpointing_mode`'s names that varve has."""

from varve.spark_integration.options.checkpoint_config import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
