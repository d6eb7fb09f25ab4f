"""`StreamExecutionEnvironment`: where a job begins, in PyFlink's manner, over a SparkSession."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from varve.spark_integration.checkpoint_config import CheckpointConfig, CheckpointingMode
from varve.spark_integration.job_plan import check_input
from varve.spark_integration.option_levels import OptionLevel, read_level
from varve.spark_integration.option_types import CONF_PREFIX
from varve.spark_integration.options import CURRENT_KEYS
from varve.spark_integration.state_backends import StateBackend
from varve.spark_integration.streams import DataStream, input_stream
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from pyspark.sql import DataFrame

    from varve.spark_integration.checkpoint_storage import CheckpointStorage

_CHANGELOG = "state.changelog.enabled"


class StreamExecutionEnvironment:
    """The settings of the level code, and the streams that use them. Settings count at a query's `start()`."""

    def __init__(self, spark: SparkSession) -> None:
        """Use `get_execution_environment`."""
        self._spark = spark
        self._settings: dict[str, Any] = {}
        self._backend: StateBackend | None = None

    @staticmethod
    def get_execution_environment(spark: SparkSession | None = None) -> StreamExecutionEnvironment:
        """A new environment.

        Args:
            spark: The session to use. None: the active one, else one that is made as `SparkSession.builder` makes it
                (local, unless `spark-submit` says otherwise).
        """
        return StreamExecutionEnvironment(
            spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        )

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    def configure(self, key: str | Mapping[str, Any], value: Any = None) -> StreamExecutionEnvironment:
        """Set an option, or several; None takes a setting back.

        Args:
            key: With or without `spark.varve.`; or a mapping of options.
            value: As text (`"10 min"`), or as a Python value (a bool, an int, a timedelta).

        Raises:
            InvalidRequestError: The option does not exist, or the value does not fit.
        """
        given = {key: value} if isinstance(key, str) else key
        plain = {k.removeprefix(CONF_PREFIX): v for k, v in given.items()}
        read_level("code", plain)
        for name, setting in plain.items():
            self._settings[CURRENT_KEYS.get(name, name)] = setting
        return self

    def code_level(self) -> OptionLevel:
        """What code has set."""
        return read_level("code", self._given())

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Choose where working state is kept.

        What is set on the object later counts too. A later `configure` of the same option wins.

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
        for key in read_level("code", state_backend.configuration()).values:
            self._settings.pop(key, None)
        self._backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend | None:
        """What `set_state_backend` set; None: it comes from the configuration."""
        return self._backend

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Switch the changelog on or off, whatever the configuration says."""
        return self.configure(_CHANGELOG, enabled)

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """What code has set; None: no preference, the configuration decides."""
        return self.code_level().values.get(_CHANGELOG)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Partitions of every operator. Raises `InvalidRequestError` below 1."""
        return self.configure("parallelism.default", parallelism)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Number of key groups, which never changes for a job. Raises `InvalidRequestError` outside 1 to 32768."""
        return self.configure("pipeline.max-parallelism", max_parallelism)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Where checkpoints go, when they are made, and how many are kept."""
        return CheckpointConfig(self.configure, self.code_level().values.get, self._is_one_machine)

    def set_checkpoint_storage(self, storage: CheckpointStorage | str | PathLike[str]) -> StreamExecutionEnvironment:
        """Keep checkpoints there: a path, a URL, or a checkpoint storage such as `FileSystemCheckpointStorage`."""
        self.get_checkpoint_config().set_checkpoint_storage(storage)
        return self

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> StreamExecutionEnvironment:
        """Start a batch, which ends with a checkpoint, every `interval` milliseconds; a trigger of the writer wins.

        Args:
            interval: Milliseconds; at least 1.
            mode: Exactly once, whatever is given.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int | None:
        """Milliseconds, as set in code; None: it comes from the configuration."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """EXACTLY_ONCE."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def from_dataframe(self, df: DataFrame) -> DataStream:
        """The rows of a streaming DataFrame.

        An event time column, if the job needs one, is named as in Spark: `df.withWatermark("ts", "10 minutes")`.

        Raises:
            InvalidRequestError: The DataFrame is not streaming, or has columns that varve cannot take.
        """
        check_input(df)
        return input_stream(self, df)

    def _given(self) -> dict[str, Any]:
        """The options that code has set, by the backend object and by themselves."""
        return {**(self._backend.configuration() if self._backend else {}), **self._settings}

    def _is_one_machine(self) -> bool:
        """Whether driver and executors share a machine."""
        return (self._spark.sparkContext.master or "").startswith("local")
