"""Lines of text in files, exactly once, by PyFlink's builders: `FileSink.for_row_format`.

```
<path>/<bucket>/<prefix>-<batch>-<seq>-<token>-<n><suffix>   lines of a batch; the attempt is in the name
<path>/_spark_metadata/, <path>/_varvite/                     as of every file sink
```

Files are written under hidden names and then moved, so no reader sees one in part. A file ends with its batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from varvite.spark_integration.connectors.files.file_sink import NO_SUCCESS_FILE, TEXT, FileSink, is_data
from varvite.spark_integration.connectors.files.parquet_file import FILE_MAX_BYTES
from varvite.spark_integration.connectors.files.spark_file_log import LoggedFile
from varvite.spark_integration.connectors.sink import ElementSink, JobSink
from varvite.spark_integration.elements.formats.java_text import java_text
from varvite.spark_integration.elements.formats.schemas import Encoder
from varvite.spark_integration.elements.types import RowElements, UndeclaredElements
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.storage.clock import SystemClock
from varvite.storage.errors import CorruptDataError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.clock import Clock

LINE: Final = "value"
_SCHEMA: Final = StructType([StructField(LINE, StringType())])
_NAME: Final = re.compile(r"-(\d+)-(\d{20})-[0-9a-f]+-\d+[^/]*$")
"""At the end of a file's name: batch and seq of its attempt, and its number in it."""
_HIDDEN: Final = re.compile(r"\.attempt-(\d{20})-[0-9a-f]+")
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True)
class BucketAssigner:
    """The directory of a batch's files, by the time at which the batch is written."""

    pattern: str = "yyyy-MM-dd--HH"
    """Of Java's `DateTimeFormatter`; empty: files are in the base path itself."""
    timezone_id: str | None = None
    """None: the driver's time zone."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """No directories."""
        return BucketAssigner("")

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """A directory for each span of time, by default for each hour."""
        return BucketAssigner(format_str, timezone_id)

    def formatter(self, jvm: Any) -> Callable[[int], str]:
        """A function from milliseconds since the epoch to the directory. Raises `InvalidRequestError`."""
        if not self.pattern:
            return lambda _: ""
        times = jvm.java.time
        try:
            zone = times.ZoneId.of(self.timezone_id) if self.timezone_id else times.ZoneId.systemDefault()
            made = times.format.DateTimeFormatter.ofPattern(self.pattern).withZone(zone)
            if ":" in str(made.format(times.Instant.ofEpochMilli(0))):
                raise InvalidRequestError(f"directories cannot have : in their names, as {self.pattern!r} would have")
        except (Py4JJavaError, PySparkException) as error:
            reason = str(error).splitlines()[-1] if isinstance(error, PySparkException) else str(error.java_exception)
            raise InvalidRequestError(
                f"date_time_bucket_assigner{(self.pattern, self.timezone_id)}: {reason}"
            ) from None
        return lambda time_ms: str(made.format(times.Instant.ofEpochMilli(time_ms)))


class RollingPolicy:
    """The end of a file: here always that of its batch, as with `on_checkpoint_rolling_policy`."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * _MEBIBYTE, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> DefaultRollingPolicy:
        """Sizes and times that have no effect: a file ends with its batch, and so earlier than by most of them."""
        del part_size, rollover_interval, inactivity_interval
        return DefaultRollingPolicy()

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """A file ends with its batch."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Flink's default, which has no effect."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """The end of a file is that of its batch."""


@dataclass(frozen=True)
class OutputFileConfig:
    """Beginning and end of files' names."""

    part_prefix: str
    part_suffix: str

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """A builder."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """The beginning."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """The end."""
        return self.part_suffix

    class OutputFileConfigBuilder:
        """Builds an `OutputFileConfig`."""

        def __init__(self) -> None:
            self.part_prefix = "part"
            self.part_suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the beginning; `part`."""
            self.part_prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the end; nothing."""
            self.part_suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """The names."""
            return OutputFileConfig(self.part_prefix, self.part_suffix)


@dataclass(frozen=True)
class RowFileSettings:
    """The settings of a builder."""

    path: str
    buckets: BucketAssigner = BucketAssigner()
    names: OutputFileConfig = OutputFileConfig("part", "")


class TextLine:
    """The line of an element: as Java has it if its type is declared, else as Python has it; picklable."""

    def __init__(self, kind: TypeInformation | None) -> None:
        self._kind = kind
        self._text: Callable[[Any], str] | None = None

    def __call__(self, element: Any) -> tuple[str]:
        """A row with the line."""
        if self._text is None:
            self._text = str if self._kind is None else java_text(self._kind)
        return (self._text(element),)

    def __reduce__(self) -> tuple[Any, ...]:
        return TextLine, (self._kind,)


class RowFileSink(FileSink, ElementSink, JobSink):
    """Writes each element as a line; made by `for_row_format`."""

    title = "FileSink"

    def __init__(self, settings: RowFileSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> RowFileSink.RowFormatBuilder:
        """A builder.

        Args:
            base_path: Directory; any URL that Spark can write to.
            encoder: `Encoder.simple_string_encoder()`.

        Raises:
            InvalidRequestError: Another encoder.
        """
        if not isinstance(encoder, Encoder):
            raise InvalidRequestError(f"for_row_format takes Encoder.simple_string_encoder(), not {encoder!r}")
        return RowFileSink.RowFormatBuilder(RowFileSettings(str(base_path)))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: Any) -> RowFileSink.RowFormatBuilder:
        """Not possible. Raises `InvalidRequestError` always."""
        del writer_factory
        raise InvalidRequestError(
            f"for_bulk_format({base_path!r}) is not possible: write columns with Spark's formats, "
            "stream.write_stream.format('parquet')"
        )

    def bind(self, spark: SparkSession, plan: JobPlan) -> None:
        settings = self._settings
        super().__init__(spark, TEXT, settings.path, plan.checkpoint_location, begun_query_id=plan.begun_query_id)
        jvm: Any = spark._jvm  # noqa: SLF001  patterns of buckets are Java's
        self._bucket_at = settings.buckets.formatter(jvm)
        self._attempt: tuple[SinkCommit, str] | None = None
        """The commit that is being written, and its bucket."""
        self._names: list[str] = []
        """Files of that commit."""

    def form(self, elements: ElementType) -> tuple[TextLine, ElementType]:
        kind = None if isinstance(elements, UndeclaredElements) else elements.state_type
        return TextLine(kind), RowElements(_SCHEMA)

    def check_columns(self, schema: StructType) -> None:
        if schema.names != _SCHEMA.names:
            raise InvalidRequestError("a FileSink takes elements: call stream.sink_to(sink)")

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        lines: list[Any] = table.column(LINE).to_pylist()
        data = "".join([f"{line}\n" for line in lines]).encode()
        if len(data) > FILE_MAX_BYTES:  # it would pass through the JVM's connection
            super(FileSink, self).write_table(table, commit)
        else:
            self._write(commit, lambda: not lines, lambda: self._write_lines(data, commit))

    def _write_lines(self, data: bytes, commit: SinkCommit) -> list[LoggedFile]:
        if not data:
            return []
        self._delete_attempt(commit)
        name = self._next_name(commit)
        self._files.create_whole(name, data)
        return self._logged()

    def _write_files(self, df: DataFrame, commit: SinkCommit) -> list[LoggedFile]:
        self._delete_attempt(commit)
        hidden = f".attempt-{commit.seq:020d}-{commit.token}"
        self._files.delete(hidden)
        df.write.format(TEXT).options(**NO_SUCCESS_FILE).mode("append").save(self._files.url(hidden))
        written = sorted(i for i in self._files.list_files(hidden) if is_data(i.url) and i.size_bytes)
        for info in written:
            self._files.move(f"{hidden}/{unquote(info.url).rpartition('/')[2]}", self._next_name(commit))
        self._files.delete(hidden)
        return self._logged()

    def _next_name(self, commit: SinkCommit) -> str:
        """The name of the next file of a commit, in a directory that is there."""
        if self._attempt is None or self._attempt[0] != commit:
            self._attempt, self._names = (commit, self._bucket_at(self._clock.now_ms())), []
        bucket, names = self._attempt[1], self._settings.names
        if bucket and not self._names:
            self._files.make_directory(bucket)
        number = f"{commit.batch}-{commit.seq:020d}-{commit.token or '0'}-{len(self._names)}"
        name = f"{names.part_prefix}-{number}{names.part_suffix}"
        self._names.append(f"{bucket}/{name}" if bucket else name)
        return self._names[-1]

    def _logged(self) -> list[LoggedFile]:
        return [LoggedFile.of(info) for name in self._names for info in self._files.list_files(name)]

    def _delete_attempt(self, commit: SinkCommit) -> None:
        if self._attempt is not None and self._attempt[0] == commit:
            for name in self._names:
                self._files.delete(name)
            self._names = []

    def _batch_of(self, file: LoggedFile) -> int:
        match = _NAME.search(file.path)
        if match is None:
            raise CorruptDataError(
                "the output directory's log names a file of no batch; give the job another directory",
                object_name=file.path,
            )
        return int(match[1])

    def _delete_files(self, files: list[LoggedFile]) -> None:
        for file in files:
            self._files.delete(unquote(file.path))

    def _clean(self, commit: SinkCommit) -> None:
        """Delete what older attempts at this and later batches have left: everywhere at first, then in one bucket."""
        bucket = "" if self._log is None or self._attempt is None else self._attempt[1]
        for info in self._files.list_files(bucket):
            match = _NAME.search(info.url)
            if match and int(match[1]) >= commit.batch and int(match[2]) < commit.seq:
                self._files.delete(unquote(info.url))
        for name in list(self._files.list_names()):
            hidden = _HIDDEN.fullmatch(name)
            if hidden and int(hidden[1]) < commit.seq:
                self._files.delete(name)

    class RowFormatBuilder:
        """Builds a file sink."""

        def __init__(self, settings: RowFileSettings) -> None:
            self._settings = settings

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFileSink.RowFormatBuilder:
            """Set the directories of files. Raises `InvalidRequestError` for no `BucketAssigner`."""
            if not isinstance(bucket_assigner, BucketAssigner):
                raise InvalidRequestError(
                    f"with_bucket_assigner takes a BucketAssigner, not {bucket_assigner!r}; to divide rows by column, "
                    "write with stream.write_stream.format(...).partitionBy(...)"
                )
            self._settings = replace(self._settings, buckets=bucket_assigner)
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFileSink.RowFormatBuilder:
            """Set beginning and end of files' names.

            Raises:
                InvalidRequestError: Readers of directories would not see such files, or they are no names.
            """
            prefix, suffix = output_file_config.part_prefix, output_file_config.part_suffix
            if prefix.startswith(("_", ".")) or "/" in prefix + suffix:
                raise InvalidRequestError(
                    f"names of files cannot begin with {prefix!r} and end with {suffix!r}: readers leave out those "
                    "that begin with _ or ., and / divides directories"
                )
            self._settings = replace(self._settings, names=output_file_config)
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFileSink.RowFormatBuilder:
            """Take a policy: a file ends with its batch in any case."""
            if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
                log_without_effect(
                    "with_rolling_policy(...)", "a file ends with its batch, as on_checkpoint_rolling_policy"
                )
            return self

        def with_bucket_check_interval(self, interval: int) -> RowFileSink.RowFormatBuilder:
            """A hint without effect."""
            log_without_effect(f"with_bucket_check_interval({interval})", "a file ends with its batch")
            return self

        def enable_compact(self, strategy: Any, compactor: Any) -> RowFileSink.RowFormatBuilder:
            """Not possible. Raises `InvalidRequestError` always."""
            del strategy, compactor
            raise InvalidRequestError(
                "enable_compact is not possible: let batches be longer with env.enable_checkpointing(ms), so that "
                "files are larger"
            )

        def disable_compact(self) -> RowFileSink.RowFormatBuilder:
            """Leave files as they are, as they always are."""
            return self

        def build(self) -> RowFileSink:
            """The sink."""
            return RowFileSink(self._settings)


class StreamingFileSink(RowFileSink):
    """The same, under the name of Flink 1."""
