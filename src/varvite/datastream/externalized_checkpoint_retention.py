"""`pyflink.datastream.externalized_checkpoint_retention`'s names."""

from varvite.spark_integration.options.checkpoint_config import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
