"""The rows of all sources of a job, as one streaming DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.spark_integration.connectors.sources.collection import empty_frame
from varvite.spark_integration.elements.side_by_side import side_by_side
from varvite.spark_integration.plan.transformations import DataFrameSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.plan.transformations import CollectionSource


def input_rows(
    spark: SparkSession,
    sources: Sequence[DataFrameSource | CollectionSource],
    opened: Mapping[int, DataFrame],
    *,
    branched: bool,
) -> DataFrame:
    """The rows of all sources; a collection that is not opened is empty.

    Args:
        spark: The session.
        sources: Of the job.
        opened: Number of a source that is a collection → its rows.
        branched: Rows say which source they are of, also those of a single one.
    """
    frames = [
        source.dataframe
        if isinstance(source, DataFrameSource)
        else opened[number]
        if number in opened
        else empty_frame(spark, source)
        for number, source in enumerate(sources)
    ]
    return side_by_side(frames) if branched else frames[0]
