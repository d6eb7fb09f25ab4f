"""`FileSource`: lines of text files, by PyFlink's builder, over Spark's source of files.

Files are found below each path, at any depth, but for those whose names begin with `.` or `_`. A file is read once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from varvite.changelog.api.time_spans import milliseconds_of
from varvite.spark_integration.connectors.sources.stream_source import VALUE_COLUMN, StreamSource, records
from varvite.spark_integration.elements.formats.schemas import SimpleStringSchema, checked_charset
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from varvite.changelog.api.time_spans import Duration
    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.plan.transformations import Transformation

_FOREVER: Final = "100000d"
"""Files that are older than others are read as well; by default Spark leaves those out that are a week older."""
_UNREADABLE: Final = r"(?i)\\.(xz|gzip)$"
"""Ends of names of compressed files that Flink reads, and Spark takes for text."""


@dataclass(frozen=True)
class StreamFormat:
    """The way in which a file source reads files; made by `text_line_format`."""

    charset: str

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Each line is an element, a str without the line's end.

        Raises:
            InvalidRequestError: There is no such charset, or its line ends are not those of ASCII.
        """
        name = checked_charset(charset_name)
        if "a\r\n".encode(name) != b"a\r\n":
            raise InvalidRequestError(
                f"lines are found by their bytes in ASCII, which {charset_name!r} does not have: convert the files"
            )
        return StreamFormat(name)


class FileEnumeratorProvider:
    """The choice of files: a hint without effect, as Spark finds and divides files itself."""

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """The choice that is made in any case."""
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """The same."""
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """The order of files: a hint without effect."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """The order that Spark has in any case."""
        return FileSplitAssignerProvider()


@dataclass(frozen=True)
class FileSource(StreamSource):
    """Lines of text files; made by `for_record_stream_format`."""

    stream_format: StreamFormat
    paths: tuple[str, ...]
    interval_ms: int | None = None
    """Time between two looks for new files; None: those that are there when the job starts, and then the end."""

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """A builder.

        Args:
            stream_format: `StreamFormat.text_line_format()`.
            paths: Files and directories; URLs that Spark can read.

        Raises:
            InvalidRequestError: Another format, or no path.
        """
        if not isinstance(stream_format, StreamFormat):
            raise InvalidRequestError(
                f"FileSource reads StreamFormat.text_line_format(), not {stream_format!r}; read others with Spark: "
                "env.from_dataframe(spark.readStream.schema(...).csv(path))"
            )
        if not paths:
            raise InvalidRequestError("FileSource needs a path")
        return FileSourceBuilder(FileSource(stream_format, tuple(map(str, paths))))

    @staticmethod
    def for_bulk_file_format(bulk_format: Any, *paths: str) -> FileSourceBuilder:
        """Not possible. Raises `InvalidRequestError` always."""
        del bulk_format
        raise InvalidRequestError(
            "for_bulk_file_format is not possible: read such files with Spark, "
            f"env.from_dataframe(spark.readStream.schema(...).parquet({paths[0] if paths else 'path'!r}))"
        )

    def transformation(
        self, spark: SparkSession, parallelism: int, type_info: TypeInformation | None
    ) -> Transformation:
        del parallelism
        lines: DataFrame = reduce(lambda all_, more: all_.union(more), (self._lines(spark, p) for p in self.paths))
        schema = SimpleStringSchema(self.stream_format.charset)
        is_bounded = self.interval_ms is None
        return records(lines, schema, type_info, is_bounded=is_bounded, interval_ms=self.interval_ms)

    @staticmethod
    def _lines(spark: SparkSession, path: str) -> DataFrame:
        reader = spark.readStream.format("text").option("recursiveFileLookup", "true").option("maxFileAge", _FOREVER)
        try:
            lines = reader.load(path)
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error) and "does not exist" not in str(error):
                raise
            raise InvalidRequestError(f"FileSource: there is nothing at {path}; correct the path") from error
        message = "FileSource cannot read files ending in .xz or .gzip: name the latter .gz, and unpack the former"
        checked = lines.where(
            f"CASE WHEN _metadata.file_name RLIKE '{_UNREADABLE}' THEN CAST(raise_error('{message}') AS BOOLEAN) "
            "ELSE true END"
        )
        return checked.selectExpr(f"CAST(value AS BINARY) AS {VALUE_COLUMN}")


class FileSourceBuilder:
    """Builds a `FileSource`."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Look for new files for ever, with this time between two looks, unless the job has an interval.

        Raises:
            InvalidRequestError: Not a span of time above zero.
        """
        interval_ms = milliseconds_of(discovery_interval)
        if interval_ms is None or interval_ms <= 0:
            raise InvalidRequestError(f"{discovery_interval!r} is no span of time; give Duration.of_seconds(5)")
        self._source = replace(self._source, interval_ms=interval_ms)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there when the job starts, and end; the default."""
        self._source = replace(self._source, interval_ms=None)
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """A hint without effect."""
        log_without_effect(f"set_file_enumerator({type(file_enumerator).__name__})", "Spark divides files itself")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """A hint without effect."""
        log_without_effect(f"set_split_assigner({type(split_assigner).__name__})", "Spark orders files itself")
        return self

    def build(self) -> FileSource:
        """The source."""
        return self._source
