"""`pyflink.common.job_execution_result`'s names that varvite has."""

from varvite.spark_integration.api.job_execution import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
