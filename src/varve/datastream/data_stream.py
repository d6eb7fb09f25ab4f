"""`pyflink.datastream.data_stream`'s names that varve has."""

from varve.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varve.spark_integration.api.connected import ConnectedStreams
from varve.spark_integration.api.stream import DataStream, KeyedStream
from varve.spark_integration.api.windowed import WindowedStream
from varve.spark_integration.api.writer import DataStreamSink
from varve.spark_integration.connectors.element_sinks import CloseableIterator

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
