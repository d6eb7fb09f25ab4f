"""`pyflink.datastream.checkpoint_config`'s names that varvite has."""

from varvite.spark_integration.options.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)

__all__ = [
    "CheckpointConfig",
    "CheckpointingMode",
    "ExternalizedCheckpointRetention",
]
