"""`pyflink.datastream.state_backend`'s names that varve has."""

from varve.spark_integration.deprecated_backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
from varve.spark_integration.predefined_options import PredefinedOptions
from varve.spark_integration.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
]
