"""`pyflink.common.job_client`'s names."""

from varvite.spark_integration.api.job_client import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus

__all__ = ["CompletableFuture", "JobClient", "JobExecutionResult", "JobID", "JobStatus"]
