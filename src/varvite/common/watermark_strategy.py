"""`pyflink.common.watermark_strategy`'s names that varvite has."""

from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy

__all__ = [
    "TimestampAssigner",
    "WatermarkStrategy",
]
