"""`pyflink.common.time`'s names that varve has."""

from varve.changelog.api.ttl_config import Time
from varve.spark_integration.functions.watermark_strategy import Duration

__all__ = [
    "Duration",
    "Time",
]
