"""`pyflink.datastream.state_backend`'s names that varve has."""

from varve.spark_integration.options.deprecated_backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
from varve.spark_integration.options.predefined_options import PredefinedOptions
from varve.spark_integration.options.state_backends import (
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
