"""`pyflink.common.time`'s names that varvite has."""

from varvite.changelog.api.ttl_config import Time
from varvite.spark_integration.functions.watermark_strategy import Duration

__all__ = [
    "Duration",
    "Time",
]
