"""`pyflink.common`'s names that varvite has, where its users look for them; no code of its own.

| module | owns |
|---|---|
| `configuration` | `Configuration` |
| `job_execution_result` | `JobExecutionResult` |
| `time` | `Duration` and `Time` |
| `typeinfo` | `Types` and `TypeInformation` |
| `types` | `Row` |
| `watermark_strategy` | timestamps and watermarks |
"""

from varvite.changelog.api.time_spans import Duration, Time
from varvite.changelog.row import Row
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.job_execution import JobExecutionResult
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.options.configuration import Configuration

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
