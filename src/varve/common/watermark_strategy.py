"""`pyflink.common.watermark_strategy`'s names that varve has."""

from varve.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy

__all__ = [
    "TimestampAssigner",
    "WatermarkStrategy",
]
