"""`pyflink.common.watermark_strategy`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Duration
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.options.absent import NO_JAVA, absent

__all__ = ["AssignerWithPeriodicWatermarksWrapper", "Duration", "TimestampAssigner", "WatermarkStrategy"]

AssignerWithPeriodicWatermarksWrapper: Any = absent("AssignerWithPeriodicWatermarksWrapper", NO_JAVA)
