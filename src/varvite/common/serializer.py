"""`pyflink.common.serializer`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.spark_integration.operators.windows.trigger import T
from varvite.spark_integration.options.absent import NO_JAVA, absent

__all__ = ["T", "TypeSerializer"]

TypeSerializer: Any = absent("TypeSerializer", NO_JAVA)
