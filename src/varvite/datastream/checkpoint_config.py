"""`pyflink.datastream.checkpoint_config`'s names."""

from varvite.changelog.api.time_spans import Duration
from varvite.spark_integration.options.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from varvite.spark_integration.options.checkpoint_config import (
    ExternalizedCheckpointRetention as ExternalizedCheckpointCleanup,
)

__all__ = [
    "CheckpointConfig",
    "CheckpointingMode",
    "Duration",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
]
