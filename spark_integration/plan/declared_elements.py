"""What a function makes, from what the user declares as its output type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from varve.changelog.types.factory import as_type
from varve.spark_integration.elements.types import RowElements, TypedElements, pickled_elements
from varve.spark_integration.plan.operator import check_columns, output_schema_of

if TYPE_CHECKING:
    from varve.spark_integration.elements.types import ElementType


def elements_of(output_type: Any, operator: str | None = None) -> ElementType:
    """What a function makes, by what the user says of it. Raises `InvalidRequestError`."""
    if output_type is None:
        return pickled_elements()
    if isinstance(output_type, (str, StructType)):
        return RowElements(output_schema_of(output_type, operator))
    made = TypedElements(as_type(output_type))
    check_columns(made.schema, "the output type")
    return made
