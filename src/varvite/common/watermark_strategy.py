"""`pyflink.common.watermark_strategy`'s names that varvite has."""

from varvite.changelog.api.time_spans import Duration
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy

__all__ = [
    "Duration",
    "TimestampAssigner",
    "WatermarkStrategy",
]
