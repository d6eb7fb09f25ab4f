"""`pyflink.datastream.data_stream`'s names that varve has."""

from varve.spark_integration.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from varve.spark_integration.connected_streams import ConnectedStreams
from varve.spark_integration.element_sinks import CloseableIterator
from varve.spark_integration.stream_sink import DataStreamSink
from varve.spark_integration.streams import DataStream, KeyedStream
from varve.spark_integration.windowed_stream import WindowedStream

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
