"""`pyflink.datastream.async_retry_predicates`' names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.options.absent import NO_ASYNC, absent

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]

empty_result_predicate: Any = absent("empty_result_predicate", NO_ASYNC)
exception_type_predicate: Any = absent("exception_type_predicate", NO_ASYNC)
has_exception_predicate: Any = absent("has_exception_predicate", NO_ASYNC)
