"""`pyflink.datastream.async_data_stream`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Time
from varvite.changelog.types.contract import TypeInformation
from varvite.datastream.functions import AsyncFunction, AsyncRetryStrategy
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.options.absent import NO_ASYNC, absent

__all__ = ["AsyncDataStream", "AsyncFunction", "AsyncRetryStrategy", "DataStream", "Time", "TypeInformation"]

AsyncDataStream: Any = absent("AsyncDataStream", NO_ASYNC)
