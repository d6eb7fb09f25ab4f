"""`pyflink.common.job_execution_result`'s names."""

from varvite.spark_integration.api.job_client import JobExecutionResult, JobID

__all__ = ["JobExecutionResult", "JobID"]
