"""`pyflink.common.job_execution_result`'s names that varve has."""

from varve.spark_integration.api.job_execution import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
