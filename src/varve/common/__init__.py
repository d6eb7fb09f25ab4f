"""`pyflink.common`'s names that varve has."""

from varve.changelog.row import Row
from varve.changelog.ttl_config import Time
from varve.changelog.type_information import TypeInformation
from varve.changelog.types import Types
from varve.spark_integration.configuration import Configuration
from varve.spark_integration.job_execution import JobExecutionResult
from varve.spark_integration.watermark_strategy import Duration, TimestampAssigner, WatermarkStrategy

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
