"""`pyflink.datastream.async_data_stream`'s names."""

from varvite.changelog.api.time_spans import Time
from varvite.changelog.types.contract import TypeInformation
from varvite.spark_integration.api.async_data_stream import AsyncDataStream
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.functions.async_io import AsyncFunction, AsyncRetryStrategy

__all__ = ["AsyncDataStream", "AsyncFunction", "AsyncRetryStrategy", "DataStream", "Time", "TypeInformation"]
