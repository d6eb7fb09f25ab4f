"""`pyflink.datastream.checkpoint_config`'s names that varve has."""

from varve.spark_integration.checkpoint_config import CheckpointConfig

__all__ = [
    "CheckpointConfig",
]
