"""`StreamExecutionEnvironment`: settings and sources of a job, as in PyFlink, over a SparkSession."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from varvite.changelog.commit.options import CHANGELOG_ENABLED
from varvite.materializer.options.driver import MAX_PARALLELISM, PARALLELISM, RUNTIME_MODE
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.execution_plan import execution_plan
from varvite.spark_integration.api.job_execution import collect, nothing_to_execute, start_jobs
from varvite.spark_integration.api.session import is_one_machine, local_session, use_this_python
from varvite.spark_integration.api.several_queries import SeveralQueries
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.api.writer import default_parallelism
from varvite.spark_integration.connectors.sources.collection import collection_source
from varvite.spark_integration.connectors.sources.stream_source import StreamSource
from varvite.spark_integration.connectors.sources.text_files import FileSource, StreamFormat
from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
from varvite.spark_integration.options.absent import NO_FLINK, READ_WITH_SPARK
from varvite.spark_integration.options.checkpoint_config import CheckpointConfig, CheckpointingMode
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
from varvite.spark_integration.options.execution_config import ExecutionConfig
from varvite.spark_integration.options.flink_keys import kept_settings, without_flinks_keys
from varvite.spark_integration.options.flink_values import TimeCharacteristic, log_without_effect
from varvite.spark_integration.options.levels import session_level, session_properties
from varvite.spark_integration.options.state_backends import StateBackend
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.stateless import dataframe_source
from varvite.spark_integration.plan.transformations import GraphSettings
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import CONF_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from pyspark.sql import DataFrame

    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.api.job_client import JobExecutionResult
    from varvite.spark_integration.api.query import VarviteStreamingQuery
    from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.options.checkpoint_storage import CheckpointStorage
    from varvite.spark_integration.options.flink_values import RestartStrategyConfiguration, SlotSharingGroup
    from varvite.spark_integration.plan.transformations import Transformation
    from varvite.storage.options.table import OptionLevel

_log: Final = logging.getLogger(__name__)


class StreamExecutionEnvironment:
    """The options that code sets, and the streams that use them. Options take effect at a query's `start()`."""

    def __init__(self, spark: SparkSession) -> None:
        """Use `get_execution_environment`."""
        self._spark = spark
        self._settings: dict[str, Any] = {}
        self._backend: StateBackend | None = None
        self._sinks: list[tuple[Transformation, Sink]] = []
        self._kept: dict[str, Any] = {}
        self.graph_settings = GraphSettings()
        """Names and parallelism of the streams' steps."""

    @staticmethod
    def get_execution_environment(
        configuration: SparkSession | Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """A new environment.

        Args:
            configuration: Settings as in PyFlink, or the session to use. Without a session: the active one,
                else a new one of `SparkSession.builder` (local, unless `spark-submit` says otherwise).

        Raises:
            InvalidRequestError: A setting does not exist.
        """
        settings = configuration if isinstance(configuration, Configuration) else None
        spark = None if isinstance(configuration, Configuration) else configuration
        spark = spark or SparkSession.getActiveSession() or local_session()
        use_this_python(spark)
        environment = StreamExecutionEnvironment(spark)
        return environment if settings is None else environment._configure(settings.to_dict())

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    def configure(
        self, configuration: str | Mapping[str, Any] | Configuration, value: Any = None
    ) -> StreamExecutionEnvironment:
        """Set an option, or several; None unsets an option.

        Keys of Flink's that have no effect here are taken, with one warning that lists them.

        Args:
            configuration: A key, with or without `spark.varvite.`; or a mapping of options, or a `Configuration`.
            value: As text (`"10 min"`), or as a Python value (a bool, an int, a timedelta).

        Raises:
            InvalidRequestError: The option does not exist, or the value does not fit.
        """
        if isinstance(configuration, str):
            return self._configure({configuration: value})
        return self._configure(configuration.to_dict() if isinstance(configuration, Configuration) else configuration)

    def _configure(self, settings: Mapping[str, Any]) -> StreamExecutionEnvironment:
        plain = {k.removeprefix(CONF_PREFIX): v for k, v in without_flinks_keys(settings, 3).items()}
        OPTIONS.read("code", plain)
        self._kept.update(kept_settings(settings))
        for name, setting in plain.items():
            self._settings[OPTIONS.current_keys.get(name, name)] = setting
        return self

    def code_level(self) -> OptionLevel:
        """The options that code has set."""
        return OPTIONS.read("code", self._all_options())

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Choose where working state is kept.

        Later changes of the object take effect, too. A later `configure` of the same option wins.

        Raises:
            InvalidRequestError: It is no state backend, or its settings do not fit.
        """
        if not isinstance(state_backend, StateBackend):
            raise InvalidRequestError(
                f"{state_backend!r} is no state backend; use HashMapStateBackend() or EmbeddedRocksDBStateBackend()"
            )
        storage = state_backend.checkpoint_storage()
        if storage is not None:
            self.set_checkpoint_storage(storage)
        for key in OPTIONS.read("code", state_backend.configuration()).values:
            self._settings.pop(key, None)
        self._backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend | None:
        """The backend that `set_state_backend` set; None: the configuration decides."""
        return self._backend

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Switch the changelog on or off, whatever the configuration says."""
        return self.configure(CHANGELOG_ENABLED.key, enabled)

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """The setting of code; None: the configuration decides."""
        return self.code_level().values.get(CHANGELOG_ENABLED.key)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Partitions of every operator. Raises `InvalidRequestError` below 1."""
        return self.configure(PARALLELISM.key, parallelism)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Number of key groups, which never changes for a job. Raises `InvalidRequestError` outside 1 to 32768."""
        return self.configure(MAX_PARALLELISM.key, max_parallelism)

    def get_parallelism(self) -> int:
        """Partitions of the operators that have no number of their own."""
        in_code = self.code_level()
        if PARALLELISM.key in in_code.values:
            return in_code.values[PARALLELISM.key]
        return default_parallelism(self._spark, [in_code, session_level(session_properties(self._spark))])

    def get_max_parallelism(self) -> int:
        """The setting of code; -1, as in PyFlink: the configuration decides."""
        return self.code_level().values.get(MAX_PARALLELISM.key, -1)

    def agree_on_max_parallelism(self, max_parallelism: int) -> None:
        """Set the max parallelism. Raises `InvalidRequestError` if it is set to another number."""
        current = self.get_max_parallelism()
        if current not in {-1, max_parallelism}:
            raise InvalidRequestError(
                f"an operator asks for a max parallelism of {max_parallelism}, but the job's is {current}, and all "
                "operators of a job share it"
            )
        self.set_max_parallelism(max_parallelism)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose STREAMING (the default), BATCH or AUTOMATIC for `execute`; see docs/guide/pyflink.md.

        Raises:
            InvalidRequestError: It is none of these.
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise InvalidRequestError(f"{execution_mode!r} is no runtime mode: give RuntimeExecutionMode.BATCH")
        return self.configure(RUNTIME_MODE.key, execution_mode.name)

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> StreamExecutionEnvironment:
        """Take Flink 1's setting. Windows and timers say themselves which time they follow, so it has no effect.

        Raises:
            InvalidRequestError: Ingestion time, which gives elements times of its own.
        """
        if characteristic is TimeCharacteristic.IngestionTime:
            raise InvalidRequestError(
                "ingestion time is not possible: give elements a time with assign_timestamps_and_watermarks, or take "
                "windows and timers of processing time"
            )
        return self._keep("time_characteristic", characteristic, "windows and timers say which time they follow")

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """The setting; event time."""
        return self._kept.get("time_characteristic", TimeCharacteristic.EventTime)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Take Flink 1's setting, without effect: what runs the driver starts it again."""
        self.get_config().set_restart_strategy(restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """The setting, which has no effect."""
        return self.get_config().get_restart_strategy()

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The settings of checkpoints: their place, interval and number."""
        return CheckpointConfig(self.configure, self._code_setting, self._is_one_machine, self._kept)

    def get_config(self) -> ExecutionConfig:
        """The settings of execution; most have no effect."""
        return ExecutionConfig(self, self._kept)

    def set_checkpoint_storage(self, storage: CheckpointStorage | str | PathLike[str]) -> StreamExecutionEnvironment:
        """Keep checkpoints in a path, a URL, or a checkpoint storage such as `FileSystemCheckpointStorage`."""
        self.get_checkpoint_config().set_checkpoint_storage(storage)
        return self

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> StreamExecutionEnvironment:
        """Start a batch, which ends with a checkpoint, every `interval` milliseconds; a trigger of the writer wins.

        It applies to sources that do not end.

        Args:
            interval: Milliseconds; at least 1.
            mode: Checked, without effect: checkpoints are exactly once.

        Raises:
            InvalidRequestError: The interval is no such number, or the mode is none.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds, as set in code; -1, as in PyFlink: the configuration decides."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode that was set; EXACTLY_ONCE, which it always is."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode
    """The same, under Flink's newer name."""

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """The setting of the checkpoint configuration, which has no effect."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """The setting of the checkpoint configuration, which has no effect."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def from_dataframe(self, df: DataFrame) -> DataStream:
        """The rows of a streaming DataFrame.

        An event time column, if the job needs one, is named as in Spark: `df.withWatermark("ts", "10 minutes")`.

        Raises:
            InvalidRequestError: The DataFrame is not streaming, or has columns that varvite cannot take.
        """
        return DataStream(self, dataframe_source(df))

    def from_collection(self, collection: Iterable[Any], type_info: TypeInformation | None = None) -> DataStream:
        """These elements, in their order as long as they stay in one partition; then the stream ends.

        Args:
            collection: At most 64 MiB as columns; copied now. Without elements the stream ends at once.
            type_info: Type of the elements. None: any objects, pickled.

        Raises:
            InvalidRequestError: Too many elements, or one that is not of the type.
        """
        return DataStream(self, collection_source(elements_of(type_info), collection))

    def from_source(
        self,
        source: Any,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """The elements of one of PyFlink's sources: `KafkaSource`, `FileSource` or `NumberSequenceSource`.

        Args:
            source: The source.
            watermark_strategy: As for `assign_timestamps_and_watermarks`. Without an assigner the elements have the
                time stamps of their records, if the source has some.
            source_name: Names the step, in errors and in `get_name`.
            type_info: Type of the elements, if the source does not say it.

        Raises:
            InvalidRequestError: It is no such source, or cannot be read.
        """
        stream = self.add_source(source, source_name, type_info)
        if isinstance(watermark_strategy, WatermarkStrategy) and watermark_strategy.is_empty:
            return stream
        if source.has_watermarks_apart:
            _log.warning(
                "source %r has one watermark for all its partitions, where Flink has one for each: what comes later by "
                "more than the strategy's out-of-orderness is late. Let for_bounded_out_of_orderness(...) cover the "
                "time by which partitions may be apart",
                source_name,
            )
        return stream.assign_timestamps_and_watermarks(watermark_strategy).name(source_name)

    def add_source(
        self, source_func: Any, source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> DataStream:
        """As `from_source`, without watermarks. Raises as `from_source`."""
        if not isinstance(source_func, StreamSource):
            raise _no_source(f"{type(source_func).__name__} as source {source_name!r}")
        node = source_func.transformation(self._spark, self.get_parallelism(), type_info)
        return DataStream(self, node).name(source_name)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """The lines of a text file, or of all files in a directory, as Flink 1 reads them; then the stream ends.

        Args:
            file_path: A path or URL that Spark can read.
            charset_name: One whose line ends are those of ASCII.

        Raises:
            InvalidRequestError: There is no such file, or no such charset.
        """
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.add_source(lines, "read_text_file")

    def create_input(self, input_format: Any, type_info: TypeInformation | None = None) -> DataStream:
        """Not possible."""
        del type_info
        raise _no_source(f"create_input({type(input_format).__name__})")

    # --- files and programs of the workers ---------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Send a Python file, a zip or an egg to the workers, whose functions then import it: Spark's `addPyFile`.

        Raises:
            InvalidRequestError: It is a directory.
        """
        if Path(file_path).is_dir():
            raise InvalidRequestError(f"{file_path} is a directory, and Spark sends files: make a zip of it")
        self._spark.sparkContext.addPyFile(file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Send an archive to the workers, which unpack it into a directory of that name: Spark's `addArchive`."""
        self._spark.sparkContext.addArchive(f"{archive_path}#{target_dir}" if target_dir else archive_path)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Send a file to the workers, where `SparkFiles.get` of its own name has its path: Spark's `addFile`."""
        del executable
        self._spark.sparkContext.addFile(file_path)
        if Path(file_path).name != name:
            log_without_effect(f"the name {name!r} of {file_path}", "read it with SparkFiles.get and its own name")

    def set_python_executable(self, python_exec: str) -> None:
        """Let Spark start its Python workers with this program."""
        context: Any = self._spark.sparkContext
        context.pythonExec = python_exec

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Without effect, with a warning in the log: nothing is installed on workers."""
        del requirements_cache_dir
        _log.warning(
            "set_python_requirements(%r) has no effect: the workers' Python has to have the packages already; "
            "docs/operate/packaging.md says how",
            requirements_file_path,
        )

    def add_jars(self, *jars_path: str) -> None:
        """Without effect, with a warning in the log: jars of Flink are of no use to Spark."""
        _log.warning(
            "add_jars%r has no effect: jars of Flink are of no use to Spark; give those of Spark's sources with "
            "spark.jars or spark.jars.packages",
            jars_path,
        )

    def add_classpaths(self, *classpaths: str) -> None:
        """Without effect, as `add_jars`."""
        self.add_jars(*classpaths)

    @property
    def _j_stream_execution_environment(self) -> Any:
        """Not possible. Raises `InvalidRequestError` always."""
        raise InvalidRequestError(f"_j_stream_execution_environment: {NO_FLINK}")

    # --- without effect ----------------------------------------------------------------------------------------------

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """A hint without effect: executors have no slots of their own size."""
        log_without_effect(f"register_slot_sharing_group({slot_sharing_group.get_name()!r})", "Spark has no such slots")
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """A hint without effect: a batch is sent as a whole."""
        return self._keep("buffer_timeout", timeout_millis, "a batch is sent as a whole")

    def get_buffer_timeout(self) -> int:
        """The milliseconds that were set; 100, as in PyFlink."""
        return self._kept.get("buffer_timeout", 100)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """A hint without effect: stateless functions run fused."""
        return self._keep("chaining", False, "stateless functions run fused")

    def is_chaining_enabled(self) -> bool:
        """The setting; True."""
        return self._kept.get("chaining", True)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """True."""
        return True

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Without effect: savepoints lie in the job's own directory."""
        return self._keep("savepoint_directory", directory, "savepoints lie in the job's own directory")

    def get_default_savepoint_directory(self) -> str | None:
        """The directory that was set."""
        return self._kept.get("savepoint_directory")

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Without effect: `set_parallelism` and `spark.sql.shuffle.partitions` say it."""
        self._keep("default_local_parallelism", parallelism, "call set_parallelism")

    def get_default_local_parallelism(self) -> int:
        """The number that was set; else `get_parallelism()`."""
        return self._kept.get("default_local_parallelism") or self.get_parallelism()

    def _keep(self, name: str, value: Any, reason: str) -> StreamExecutionEnvironment:
        self._kept[name] = value
        log_without_effect(name, reason)
        return self

    # --- execution ---------------------------------------------------------------------------------------------------

    def add_sink(self, end: Transformation, sink: Sink) -> None:
        """Let `execute` write a stream to a sink."""
        self._sinks.append((end, sink))

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Execute the sinks that were registered since the last time (`print`), and wait for the end.

        A job over collections ends by itself; any other runs until it is stopped or fails.

        Args:
            job_name: Names the job and its directory in the checkpoint storage; other characters than letters, digits,
                `.`, `_` and `-` become `-`.

        Raises:
            InvalidRequestError: There is nothing to execute, or it cannot be executed.
            UserFunctionError: A user's function raised.
            VarviteError: The storage cannot be used, or the state belongs to another job.
        """
        return self.execute_async(job_name).get_job_execution_result().result()

    def execute_async(self, job_name: str | None = None) -> VarviteStreamingQuery | SeveralQueries:
        """As `execute`, without waiting: returns a `JobClient`, which is Spark's `StreamingQuery`, too.

        A program that writes several streams is several queries, of the job's name and of that with `-2`, `-3` and so
        on; the side outputs of a stream's last stateful operator are written with it.
        """
        sinks, self._sinks = self._sinks, []
        queries = start_jobs(self, sinks, job_name)
        return queries[0] if len(queries) == 1 else SeveralQueries(queries)

    def get_execution_plan(self) -> str:
        """The steps that lead to the registered sinks, as JSON. Raises `InvalidRequestError` if there are none."""
        if not self._sinks:
            raise nothing_to_execute()
        return execution_plan(self._sinks, self.graph_settings, self.get_parallelism())

    def close(self) -> None:
        """Nothing is left to release: the session belongs to the program."""

    def collect(self, end: Transformation, name: str | None, limit: int | None) -> CloseableIterator | list[Any]:
        """Start a job and return its elements, for `DataStream.execute_and_collect`."""
        return collect(self, end, name, limit)

    def _all_options(self) -> dict[str, Any]:
        """The options that code has set, on the backend object and one by one."""
        return {**(self._backend.configuration() if self._backend else {}), **self._settings}

    def _code_setting(self, key: str) -> Any:
        """The setting of code now; None: there is none."""
        return self.code_level().values.get(key)

    def _is_one_machine(self) -> bool:
        """True if driver and executors share a machine."""
        return is_one_machine(self._spark)


def _no_source(call: str) -> InvalidRequestError:
    return InvalidRequestError(f"{call} is not possible: {READ_WITH_SPARK}")
