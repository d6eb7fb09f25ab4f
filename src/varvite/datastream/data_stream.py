"""`pyflink.datastream.data_stream`'s names that varvite has."""

from varvite.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varvite.spark_integration.api.connected import ConnectedStreams
from varvite.spark_integration.api.stream import DataStream, KeyedStream
from varvite.spark_integration.api.windowed import WindowedStream
from varvite.spark_integration.api.writer import DataStreamSink
from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator

__all__ = [
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]
