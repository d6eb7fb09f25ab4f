"""`ExecutionConfig`: PyFlink's settings of execution, `env.get_config()`.

Those that varvite has are options. The others are kept for their getters, and logged as without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from varvite.changelog.schema.pickled import GENERIC_TYPES
from varvite.materializer.options.driver import JOB_PARAMETERS
from varvite.spark_integration.options.flink_values import (
    ExecutionMode,
    InputDependencyConstraint,
    RestartStrategies,
    log_without_effect,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.spark_integration.options.flink_values import RestartStrategyConfiguration
    from varvite.storage.options.table import OptionLevel


class Environment(Protocol):
    """The part of the environment that these settings are about."""

    def get_parallelism(self) -> int:
        """Partitions of the operators that have no number of their own."""
        ...

    def set_parallelism(self, parallelism: int) -> Any:
        """Set it."""
        ...

    def get_max_parallelism(self) -> int:
        """Number of key groups; -1 if it is not set."""
        ...

    def set_max_parallelism(self, max_parallelism: int) -> Any:
        """Set it."""
        ...

    def configure(self, configuration: str, value: Any) -> Any:
        """Set an option."""
        ...

    def code_level(self) -> OptionLevel:
        """The options that code has set."""
        ...


_NO_JAVA = "there are no Java serialisers"


class ExecutionConfig:
    """The settings of execution of an environment."""

    PARALLELISM_DEFAULT: ClassVar[int] = -1
    PARALLELISM_UNKNOWN: ClassVar[int] = -2

    def __init__(self, environment: Environment, kept: dict[str, Any]) -> None:
        """Use `env.get_config()`.

        Args:
            environment: The environment.
            kept: Settings without effect, for their getters.
        """
        self._environment = environment
        self._kept = kept

    # --- options ---

    def get_parallelism(self) -> int:
        """Partitions of the operators that have no number of their own."""
        return self._environment.get_parallelism()

    def set_parallelism(self, parallelism: int) -> Self:
        """Set that number. Raises `InvalidRequestError` below 1."""
        self._environment.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups that was set; -1: the configuration decides."""
        return self._environment.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups. Raises `InvalidRequestError` outside 1 to 32768."""
        self._environment.set_max_parallelism(max_parallelism)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters that code has set for `RuntimeContext.get_job_parameter`."""
        return dict(self._environment.code_level().values.get(JOB_PARAMETERS.key) or {})

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> Self:
        """Set the parameters that functions read with `RuntimeContext.get_job_parameter`."""
        self._environment.configure(JOB_PARAMETERS.key, dict(global_job_parameters_dict))
        return self

    def enable_generic_types(self) -> Self:
        """Allow values of any type in states, which are pickled."""
        self._environment.configure(GENERIC_TYPES.key, True)
        return self

    def disable_generic_types(self) -> Self:
        """Refuse jobs whose states would be pickled."""
        self._environment.configure(GENERIC_TYPES.key, False)
        return self

    def has_generic_types_disabled(self) -> bool:
        """True if `disable_generic_types` was called."""
        return self._environment.code_level().values.get(GENERIC_TYPES.key) is False

    def enable_auto_generated_uids(self) -> Self:
        """Let operators without a `uid` have one that is made from their place, as they do anyway."""
        return self

    def disable_auto_generated_uids(self) -> Self:
        """Not possible. Raises `InvalidRequestError` always."""
        raise InvalidRequestError(
            "operators without a uid cannot be refused: give each a uid(), and remove disable_auto_generated_uids()"
        )

    def has_auto_generated_uids_enabled(self) -> bool:
        """True."""
        return True

    # --- without effect ---

    def set_auto_watermark_interval(self, interval: int) -> Self:
        """Without effect: a watermark moves from batch to batch."""
        return self._keep("auto_watermark_interval", interval, "a watermark moves from batch to batch")

    def get_auto_watermark_interval(self) -> int:
        """The milliseconds that were set; 200, as in PyFlink."""
        return self._kept.get("auto_watermark_interval", 200)

    def set_latency_tracking_interval(self, interval: int) -> Self:
        """Without effect: the metrics of a batch tell its time."""
        return self._keep("latency_tracking_interval", interval, "the metrics of a batch tell its time")

    def get_latency_tracking_interval(self) -> int:
        """The milliseconds that were set; 0."""
        return self._kept.get("latency_tracking_interval", 0)

    def set_task_cancellation_interval(self, interval: int) -> Self:
        """Without effect: Spark cancels tasks."""
        return self._keep("task_cancellation_interval", interval, "Spark cancels tasks")

    def get_task_cancellation_interval(self) -> int:
        """The milliseconds that were set; 30,000, as in PyFlink."""
        return self._kept.get("task_cancellation_interval", 30_000)

    def set_task_cancellation_timeout(self, timeout: int) -> Self:
        """Without effect: `spark.sql.streaming.stopTimeout` is the time that a batch has."""
        return self._keep("task_cancellation_timeout", timeout, "set spark.sql.streaming.stopTimeout")

    def get_task_cancellation_timeout(self) -> int:
        """The milliseconds that were set; 180,000, as in PyFlink."""
        return self._kept.get("task_cancellation_timeout", 180_000)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> Self:
        """Without effect: what is stored is always compressed."""
        return self._keep("use_snapshot_compression", use_snapshot_compression, "snapshots are always compressed")

    def is_use_snapshot_compression(self) -> bool:
        """The setting; False, as in PyFlink."""
        return self._kept.get("use_snapshot_compression", False)

    def enable_closure_cleaner(self) -> Self:
        """Without effect: cloudpickle takes what a function uses."""
        return self._keep("closure_cleaner", True, "cloudpickle takes what a function uses")

    def disable_closure_cleaner(self) -> Self:
        """Without effect, as `enable_closure_cleaner`."""
        return self._keep("closure_cleaner", False, "cloudpickle takes what a function uses")

    def is_closure_cleaner_enabled(self) -> bool:
        """The setting; True, as in PyFlink."""
        return self._kept.get("closure_cleaner", True)

    def enable_object_reuse(self) -> Self:
        """Without effect, as the next one: functions get objects of their own."""
        return self._keep("object_reuse", True, "functions get objects of their own")

    def disable_object_reuse(self) -> Self:
        """Without effect."""
        return self._keep("object_reuse", False, "functions get objects of their own")

    def is_object_reuse_enabled(self) -> bool:
        """The setting; False, as in PyFlink."""
        return self._kept.get("object_reuse", False)

    def enable_force_kryo(self) -> Self:
        """Without effect, as the next five: there are no Java serialisers."""
        return self._keep("force_kryo", True, _NO_JAVA)

    def disable_force_kryo(self) -> Self:
        """Without effect."""
        return self._keep("force_kryo", False, _NO_JAVA)

    def is_force_kryo_enabled(self) -> bool:
        """The setting; False, as in PyFlink."""
        return self._kept.get("force_kryo", False)

    def enable_force_avro(self) -> Self:
        """Without effect."""
        return self._keep("force_avro", True, _NO_JAVA)

    def disable_force_avro(self) -> Self:
        """Without effect."""
        return self._keep("force_avro", False, _NO_JAVA)

    def is_force_avro_enabled(self) -> bool:
        """The setting; False, as in PyFlink."""
        return self._kept.get("force_avro", False)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """None of them."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """None of them."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """None of them."""
        return []

    # --- of Flink 1, without effect ---

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Without effect: what runs the driver starts it again."""
        return self._keep("restart_strategy", restart_strategy_configuration, "what runs the driver starts it again")

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """The setting."""
        return self._kept.get("restart_strategy", RestartStrategies.fall_back_restart())

    def set_execution_mode(self, execution_mode: ExecutionMode) -> Self:
        """Without effect: Spark says how tasks pass on their rows. `set_runtime_mode` of the environment has one."""
        return self._keep("execution_mode", execution_mode, "Spark says how tasks pass on their rows")

    def get_execution_mode(self) -> ExecutionMode:
        """The setting; PIPELINED, as in PyFlink."""
        return self._kept.get("execution_mode", ExecutionMode.PIPELINED)

    def set_default_input_dependency_constraint(self, input_dependency_constraint: InputDependencyConstraint) -> Self:
        """Without effect: a batch is read as a whole."""
        return self._keep("input_dependency_constraint", input_dependency_constraint, "a batch is read as a whole")

    def get_default_input_dependency_constraint(self) -> InputDependencyConstraint:
        """The setting; ANY, as in PyFlink."""
        return self._kept.get("input_dependency_constraint", InputDependencyConstraint.ANY)

    def disable_auto_type_registration(self) -> Self:
        """Without effect, as the next three: there are no Java serialisers."""
        return self._keep("auto_type_registration", False, _NO_JAVA)

    def is_auto_type_registration_disabled(self) -> bool:
        """The setting; False, as in PyFlink."""
        return not self._kept.get("auto_type_registration", True)

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> Self:
        """Without effect."""
        return self._keep("kryo_serializer", (type_class_name, serializer_class_name), _NO_JAVA)

    def register_kryo_type(self, type_class_name: str) -> Self:
        """Without effect."""
        return self._keep("kryo_type", type_class_name, _NO_JAVA)

    register_type_with_kryo_serializer = add_default_kryo_serializer
    register_pojo_type = register_kryo_type

    def _keep(self, name: str, value: Any, reason: str) -> Self:
        self._kept[name] = value
        log_without_effect(name, reason)
        return self
