"""Spark's `console`, `memory` and `foreach`, with the same calls, options and output."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.output.table import frame_of, plain
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.options.format_options import read_truth
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit

CONSOLE: Final = "console"
MEMORY: Final = "memory"
_RULE: Final = "-" * 43
_VIEW: Final = re.compile(r"[A-Za-z_]\w*")


class ConsoleSink(Sink):
    """Prints the first rows of each batch, as `DataFrame.show` does.

    Args:
        options: `numRows` and `truncate`, as Spark has them.

    Raises:
        InvalidRequestError: Another option, or a value that does not fit.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        known = {key.lower(): (key, value) for key, value in options.items()}
        self._rows = _number(*known.pop("numrows", ("numRows", 20)))
        self._truncates = read_truth(*known.pop("truncate", ("truncate", True)))
        _refuse(CONSOLE, (key for key, _ in known.values()), "numRows and truncate")

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        frame: Any = df
        text: str = frame._show_string(self._rows, self._truncates)  # noqa: SLF001  `show` prints it at once
        sys.stdout.write(f"{_RULE}\nBatch: {commit.batch}\n{_RULE}\n{text}\n")
        sys.stdout.flush()


class MemorySink(Sink):
    """Keeps all rows in the driver's memory, as a temporary view with the name of the query.

    A batch that is executed again within the run replaces its rows. The rows of earlier runs are not there.

    Args:
        session: The session of the view.
        name: Of the query.
        options: There are none.

    Raises:
        InvalidRequestError: A name that no view can have, or an option.
    """

    brings_rows_to_driver = True

    def __init__(self, session: SparkSession, name: str, options: Mapping[str, Any]) -> None:
        _refuse(MEMORY, options, "none")
        if not _VIEW.fullmatch(name):
            raise InvalidRequestError(
                f"format('memory') makes a view with the name of the query, and {name!r} can be none: take letters, "
                "digits and _"
            )
        self._session = session
        self._name = name
        self._schema: StructType | None = None
        self._batches: dict[int, pa.Table] = {}

    @property
    def repeated_batch(self) -> RepeatedBatch:
        return RepeatedBatch.REPLACED

    def check_columns(self, schema: StructType) -> None:
        self._schema = schema

    def prepare(self, job_id: str) -> None:
        del job_id
        self._batches = {}
        self._show()

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self.write_table(df.toArrow().cast(to_arrow_schema(df.schema, timezone="UTC")), commit)

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        self._batches = {batch: rows for batch, rows in self._batches.items() if batch < commit.batch}
        self._batches[commit.batch] = plain(table)
        self._show()

    def _show(self) -> None:
        """Let the view have all rows."""
        assert self._schema is not None  # noqa: S101  `check_columns` comes first
        nothing = to_arrow_schema(self._schema, timezone="UTC").empty_table()
        rows = pa.concat_tables([table for table in self._batches.values() if table.num_rows] or [nothing])
        frame_of(self._session, rows, self._schema).createOrReplaceTempView(self._name)


class ForeachSink(Sink):
    """Calls a function for each row, or an object with `process`, and perhaps `open` and `close`, in Spark's tasks.

    At least once: a batch that is executed again calls it again, with the same `epoch_id`.

    Args:
        function: The function or the object.

    Raises:
        PySparkAttributeError: It is neither.
    """

    def __init__(self, function: Any) -> None:
        self._call: Callable[[Any, Any], Any] = DataStreamWriter._construct_foreach_function(function)  # noqa: SLF001

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        del commit
        df.rdd.mapPartitionsWithIndex(self._call).count()


def _number(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidRequestError(f"option {key!r} is {value!r}; it is a number of rows") from None


def _refuse(name: str, options: Any, known: str) -> None:
    unknown = sorted(options)
    if unknown:
        raise InvalidRequestError(f"format({name!r}) does not have the options {unknown}; it has {known}")
