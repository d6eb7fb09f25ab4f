"""`pyflink.common`'s names that varve has."""

from varve.changelog.api.ttl_config import Time
from varve.changelog.row import Row
from varve.changelog.types.contract import TypeInformation
from varve.changelog.types.factory import Types
from varve.spark_integration.api.job_execution import JobExecutionResult
from varve.spark_integration.functions.watermark_strategy import Duration, TimestampAssigner, WatermarkStrategy
from varve.spark_integration.options.configuration import Configuration

__all__ = [
    "Configuration",
    "Duration",
    "JobExecutionResult",
    "Row",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
]
