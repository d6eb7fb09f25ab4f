"""`pyflink.datastream.checkpoint_storage`'s names that varve has."""

from varve.spark_integration.checkpoint_config import FileSystemCheckpointStorage

__all__ = [
    "FileSystemCheckpointStorage",
]
