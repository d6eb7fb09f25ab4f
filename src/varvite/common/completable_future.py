"""`pyflink.common.completable_future`'s names."""

from varvite.spark_integration.api.job_client import CompletableFuture

__all__ = ["CompletableFuture"]
