"""`pyflink.common.job_status`' names."""

from varvite.spark_integration.api.job_client import JobStatus

__all__ = ["JobStatus"]
