"""`pyflink.datastream.async_retry_strategies`' names; what cannot be used says so when it is used."""

from typing import Any

from varvite.datastream.functions import AsyncRetryPredicate, AsyncRetryStrategy
from varvite.spark_integration.functions.window import OUT
from varvite.spark_integration.options.absent import NO_ASYNC, absent

__all__ = [
    "OUT",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

ExponentialBackoffDelayRetryStrategy: Any = absent("ExponentialBackoffDelayRetryStrategy", NO_ASYNC)
FixedDelayRetryStrategy: Any = absent("FixedDelayRetryStrategy", NO_ASYNC)
NoRetryStrategy: Any = absent("NoRetryStrategy", NO_ASYNC)
RetryPredicate: Any = absent("RetryPredicate", NO_ASYNC)
