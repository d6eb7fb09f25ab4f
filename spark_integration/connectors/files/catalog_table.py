"""Tables of Spark's catalogue whose rows are files: `toTable`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import IntegerType

from varvite.spark_integration.connectors.files.file_sink import FORMATS, FileSink
from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit

BATCH_COLUMN: Final = "batch_id"
"""Readers of files see the batch's directory as this partition column."""


class CatalogTable(NamedTuple):
    """A table of Spark's catalogue whose rows are files."""

    file_format: str
    location: str
    partition_by: tuple[str, ...]
    """Columns, without that of the batch."""
    name: str

    def sink(self, spark: SparkSession, *arguments: Any, **settings: Any) -> FileSink:
        """A sink that writes its files; arguments as of `FileSink`."""
        return CatalogFileSink(self.name, spark, *arguments, **settings)


class CatalogFileSink(FileSink):
    """Writes files of a table. Its session reads them, also if it has read the table before."""

    def __init__(self, name: str, spark: SparkSession, *arguments: Any, **settings: Any) -> None:
        """Arguments as of `FileSink`, behind the table's name."""
        super().__init__(spark, *arguments, **settings)
        session: Any = spark
        state = session._jsparkSession.sessionState()  # noqa: SLF001  PySpark's `refreshTable` lists all files at once
        self._catalog, self._name = state.catalog(), state.sqlParser().parseTableIdentifier(name)

    def complete(self, commit: SinkCommit) -> None:
        """Forget the files that the session has seen in the table."""
        super().complete(commit)
        self._catalog.refreshTable(self._name)


def catalog_table(
    spark: SparkSession, name: str, file_format: str | None, schema: StructType, partition_by: Sequence[str]
) -> CatalogTable:
    """The table of a name, which is made if there is none, as by Spark's `toTable`; with a column for the batch.

    Args:
        spark: The session.
        name: Of the table, perhaps with its database's before the dot.
        file_format: Of a table that is made; None: Spark's default.
        schema: Columns of the output.
        partition_by: Columns that partition a table that is made.

    Raises:
        InvalidRequestError: It is no table of files, or has other columns.
    """
    if not spark.catalog.tableExists(name):
        made_of = file_format or str(spark.conf.get("spark.sql.sources.default"))
        if made_of.lower() not in FORMATS:
            raise _not_of_files(name, made_of)
        columns = schema.toNullable().add(BATCH_COLUMN, IntegerType()).toDDL()
        partitions = ", ".join(map(quoted, (*partition_by, BATCH_COLUMN)))
        spark.sql(f"CREATE TABLE {name} ({columns}) USING {made_of} PARTITIONED BY ({partitions})")
    details = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
    provider, location = str(details.get("Provider")).lower(), details.get("Location")
    if provider not in FORMATS or not location:
        raise _not_of_files(name, str(details.get("Provider") or details.get("Type") or "a view").lower())
    columns = [column for column in spark.catalog.listColumns(name) if column.name != BATCH_COLUMN]
    kinds = {column.name: column.dataType for column in columns}
    output = {field.name: field.dataType.simpleString() for field in schema.fields}
    if kinds != output:
        raise InvalidRequestError(f"table {name} has the columns {kinds}, and the output {output}")
    of_table = [column.name for column in columns if column.isPartition]
    if partition_by and list(partition_by) != of_table:
        raise InvalidRequestError(f"table {name} is partitioned by {of_table}, not by {list(partition_by)}")
    return CatalogTable(provider, str(location), tuple(of_table), name)


def _not_of_files(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"toTable({name!r}): {reason} is no table of files ({', '.join(FORMATS)}): write to a table exactly once with "
        "format('delta') and a path, with an IcebergSink or a PostgresSink (docs/guide/tables.md); or at least once "
        f"with foreach_batch(lambda rows, batch: rows.writeTo({name!r}).append())"
    )
