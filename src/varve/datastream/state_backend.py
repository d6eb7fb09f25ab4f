"""`pyflink.datastream.state_backend`'s names that varve has."""

from varve.spark_integration.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend

__all__ = [
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "StateBackend",
]
