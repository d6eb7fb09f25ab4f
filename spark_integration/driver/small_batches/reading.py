"""Reads the rows of a batch to the driver, up to a limit, in one stage; and computes key groups by Spark's own hash.

A `LocalLimit` in front of the collect bounds what each task hands over (I10). PySpark has no call for it: its `limit`
brings all rows to one task first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from varvite.spark_integration.connectors.output.table import frame_of
from varvite.spark_integration.driver.arrow_batch_limit import MAX_RECORDS
from varvite.spark_integration.driver.operator_executor import collected_batches
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


WHOLE_STAGE: Final = "spark.sql.codegen.wholeStage"


class BoundedReader:
    """Reads DataFrames of one session."""

    def __init__(self, session: SparkSession) -> None:
        """Raises `Py4JError` if this Spark's internals are others than known."""
        jvm: Any = session._jvm  # noqa: SLF001  there is no public way to a local limit
        self._session = session
        self._java_session: Any = session._jsparkSession  # noqa: SLF001
        self._literal: Any = getattr(getattr(jvm.org.apache.spark.sql.catalyst.expressions, "Literal$"), "MODULE$")
        self._local_limit: Any = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalLimit
        self._project: Any = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        self._parser: Any = self._java_session.sessionState().sqlParser()
        self._to_sequence: Any = jvm.PythonUtils.toSeq
        self._settings: Any = self._java_session.sessionState().conf()
        self._whole_stage = str(session.conf.get(WHOLE_STAGE))
        self._parsed: dict[tuple[str, ...], Any] = {}
        self._of_rows: Any = jvm.org.apache.spark.sql.classic.Dataset.ofRows
        self.time_zone = str(session.conf.get("spark.sql.session.timeZone"))
        """Of timestamps that Spark sends to Python."""
        records = int(str(session.conf.get(MAX_RECORDS)))
        self.batch_rows_max = records if records > 0 else None
        """Most rows of an Arrow batch that Spark sends to Python; None: there is no limit."""

    def read(self, rows: DataFrame, columns: Sequence[str], rows_max: int) -> list[pa.RecordBatch]:
        """The rows as Spark sends them to a `mapInArrow`, in the order of their partitions.

        Args:
            rows: To read; they are executed once.
            columns: To be selected of them, as expressions.
            rows_max: If there are more in all, more are returned, and perhaps not all.
        """
        inner: Any = rows._jdf  # noqa: SLF001  there is no public way to a local limit
        selected = self._project(self._expressions(tuple(columns)), inner.queryExecution().logical())
        # In one piece: Spark analyses it once, and has parsed the expressions in the batch before.
        limit = self._local_limit(self._literal.apply(rows_max + 1), selected)
        return collected_batches(DataFrame(self._planned(limit), self._session))

    def _planned(self, logical: Any) -> Any:
        """The `Dataset` of a plan, with its physical plan.

        Spark numbers the limits in the code that it generates, so it would compile new code in every batch.
        """
        self._settings.setConfString(WHOLE_STAGE, "false")
        try:
            planned = self._of_rows(self._java_session, logical)
            planned.queryExecution().executedPlan()
        finally:
            self._settings.setConfString(WHOLE_STAGE, self._whole_stage)
        return planned

    def _expressions(self, texts: tuple[str, ...]) -> Any:
        """The expressions as Spark has parsed them, for any batch."""
        if texts not in self._parsed:
            self._parsed[texts] = self._to_sequence([self._parser.parseExpression(text) for text in texts])
        return self._parsed[texts]

    def with_key_groups(self, rows: pa.Table, schema: StructType, columns: Sequence[str], group: str) -> pa.Table:
        """Rows that are on the driver, with their key groups: Spark evaluates the expression, without a job.

        Args:
            rows: They have the columns of `schema`.
            schema: Their columns.
            columns: Those that the expression reads.
            group: The key group, as an expression of Spark's.
        """
        read = type(schema)([schema[name] for name in columns])
        frame = frame_of(self._session, rows.select(list(columns)), read)
        groups = [row[0] for row in frame.selectExpr(group).collect()]
        return rows.append_column(pa.field(KEY_GROUP_COLUMN, pa.int32()), pa.array(groups, pa.int32()))

    def as_sent(self, rows: pa.Table, schema: StructType) -> pa.Table:
        """Rows of an operator with the types with which Spark would send them to the next one."""
        return rows.cast(to_arrow_schema(schema, timezone=self.time_zone))
