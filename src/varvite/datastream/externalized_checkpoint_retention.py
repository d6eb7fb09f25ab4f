"""`pyflink.datastream.externalized_checkpoint_retention`'s names that varvite has."""

from varvite.spark_integration.options.checkpoint_config import ExternalizedCheckpointRetention

__all__ = [
    "ExternalizedCheckpointRetention",
]
