"""`pyflink.common.io`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.options.absent import READ_WITH_SPARK, absent

__all__ = ["InputFormat"]

InputFormat: Any = absent("InputFormat", READ_WITH_SPARK)
