"""`pyflink.common.time`'s names that varve has."""

from varve.spark_integration.watermark_strategy import Duration, Time

__all__ = [
    "Duration",
    "Time",
]
