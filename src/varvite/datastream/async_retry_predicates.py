"""`pyflink.datastream.async_retry_predicates`' names."""

from varvite.spark_integration.functions.async_io import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
