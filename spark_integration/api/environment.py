"""`StreamExecutionEnvironment`: settings and sources of a job, as in PyFlink, over a SparkSession."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from varvite.changelog.commit.options import CHANGELOG_ENABLED
from varvite.materializer.options.driver import MAX_PARALLELISM, PARALLELISM
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.job_execution import JobExecutionResult, collect, start_job
from varvite.spark_integration.api.session import is_one_machine, local_session, use_this_python
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.api.writer import default_parallelism
from varvite.spark_integration.connectors.collection import collection_source
from varvite.spark_integration.options.checkpoint_config import CheckpointConfig, CheckpointingMode
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
from varvite.spark_integration.options.flink_keys import check_runtime_mode, without_flinks_keys
from varvite.spark_integration.options.levels import session_level
from varvite.spark_integration.options.state_backends import StateBackend
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.stateless import dataframe_source
from varvite.spark_integration.plan.transformations import GraphSettings
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import CONF_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from pyspark.sql import DataFrame

    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.api.query import VarviteStreamingQuery
    from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.options.checkpoint_storage import CheckpointStorage
    from varvite.spark_integration.plan.transformations import Transformation
    from varvite.storage.options.table import OptionLevel


class StreamExecutionEnvironment:
    """The options that code sets, and the streams that use them. Options take effect at a query's `start()`."""

    def __init__(self, spark: SparkSession) -> None:
        """Use `get_execution_environment`."""
        self._spark = spark
        self._settings: dict[str, Any] = {}
        self._backend: StateBackend | None = None
        self._sinks: list[tuple[Transformation, Sink]] = []
        self.graph_settings = GraphSettings()
        """Names and parallelism of the streams' steps."""

    @staticmethod
    def get_execution_environment(
        spark_or_configuration: SparkSession | Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """A new environment.

        Args:
            spark_or_configuration: The session to use, or settings as in PyFlink. Without a session: the active one,
                else a new one of `SparkSession.builder` (local, unless `spark-submit` says otherwise).

        Raises:
            InvalidRequestError: A setting does not exist.
        """
        is_configuration = isinstance(spark_or_configuration, Configuration)
        configuration = spark_or_configuration if is_configuration else None
        spark = None if is_configuration else spark_or_configuration
        spark = spark or SparkSession.getActiveSession() or local_session()
        use_this_python(spark)
        environment = StreamExecutionEnvironment(spark)
        return environment if configuration is None else environment._configure(configuration.to_dict())

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    def configure(self, key: str | Mapping[str, Any] | Configuration, value: Any = None) -> StreamExecutionEnvironment:
        """Set an option, or several; None unsets an option.

        Keys of Flink's that have no effect here are taken, with one warning that lists them.

        Args:
            key: With or without `spark.varvite.`; or a mapping of options, or a `Configuration`.
            value: As text (`"10 min"`), or as a Python value (a bool, an int, a timedelta).

        Raises:
            InvalidRequestError: The option does not exist, or the value does not fit; a runtime mode but STREAMING.
        """
        return self._configure(
            {key: value} if isinstance(key, str) else key.to_dict() if isinstance(key, Configuration) else key
        )

    def _configure(self, settings: Mapping[str, Any]) -> StreamExecutionEnvironment:
        plain = {k.removeprefix(CONF_PREFIX): v for k, v in without_flinks_keys(settings, 3).items()}
        OPTIONS.read("code", plain)
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
        return default_parallelism(self._spark, [in_code, session_level(self._spark.conf.getAll)])

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
        """No effect for STREAMING. Raises `InvalidRequestError` for BATCH and AUTOMATIC, which have other results."""
        check_runtime_mode(execution_mode.name)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The settings of checkpoints: their place, interval and number."""
        return CheckpointConfig(self.configure, self.code_level().values.get, self._is_one_machine)

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
        """EXACTLY_ONCE."""
        return self.get_checkpoint_config().get_checkpointing_mode()

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
            collection: At least one element, at most 64 MiB as columns; copied now.
            type_info: Type of the elements. None: any objects, pickled.

        Raises:
            InvalidRequestError: No element, too many, or one that is not of the type.
        """
        return DataStream(self, collection_source(elements_of(type_info), collection))

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
        clock = SystemClock()
        started_s = clock.monotonic_s()
        query = self.execute_async(job_name)
        query.awaitTermination()
        return JobExecutionResult(query.name or "", round((clock.monotonic_s() - started_s) * 1000))

    def execute_async(self, job_name: str | None = None) -> VarviteStreamingQuery:
        """As `execute`, without waiting: returns Spark's `StreamingQuery`."""
        sinks, self._sinks = self._sinks, []
        return start_job(self, sinks, job_name)

    def collect(self, end: Transformation, name: str | None, limit: int | None) -> CloseableIterator | list[Any]:
        """Start a job and return its elements, for `DataStream.execute_and_collect`."""
        return collect(self, end, name, limit)

    def _all_options(self) -> dict[str, Any]:
        """The options that code has set, on the backend object and one by one."""
        return {**(self._backend.configuration() if self._backend else {}), **self._settings}

    def _is_one_machine(self) -> bool:
        """True if driver and executors share a machine."""
        return is_one_machine(self._spark)
