"""`pyflink.datastream.async_retry_strategies`' names."""

from varvite.spark_integration.functions.async_io import (
    NO_RETRY_STRATEGY,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
    RetryPredicate,
)
from varvite.spark_integration.functions.window import OUT

__all__ = [
    "NO_RETRY_STRATEGY",
    "OUT",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]
