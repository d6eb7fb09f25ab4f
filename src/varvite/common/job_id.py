"""`pyflink.common.job_id`'s names."""

from varvite.spark_integration.api.job_client import JobID

__all__ = ["JobID"]
