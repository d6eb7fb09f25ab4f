"""`pyflink.datastream.externalized_checkpoint_retention`'s names that varve has."""

from varve.spark_integration.options.checkpoint_config import ExternalizedCheckpointRetention

__all__ = [
    "ExternalizedCheckpointRetention",
]
