"""`pyflink.common`'s names, where its users look for them; no code of its own.

| module | owns |
|---|---|
| `completable_future` | `CompletableFuture` |
| `config_options` | `ConfigOptions` |
| `configuration` | `Configuration` |
| `constants` | numbers |
| `execution_config` | `ExecutionConfig` |
| `execution_mode` | `ExecutionMode` of Flink 1 |
| `input_dependency_constraint` | `InputDependencyConstraint` |
| `io` | `InputFormat` |
| `job_client` | `JobClient` |
| `job_execution_result` | `JobExecutionResult` |
| `job_id` | `JobID` |
| `job_status` | `JobStatus` |
| `restart_strategy` | `RestartStrategies` |
| `serialization` | schemas of records |
| `serializer` | `TypeSerializer` |
| `time` | `Duration`, `Instant` and `Time` |
| `typeinfo` | `Types` and `TypeInformation` |
| `types` | `Row` and `RowKind` |
| `watermark_strategy` | timestamps and watermarks |
"""

from varvite.changelog.api.time_spans import Duration, Instant, Time
from varvite.changelog.row import Row, RowKind
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.common.serialization import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ByteArraySchema,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    DeserializationSchema,
    Encoder,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from varvite.common.serializer import TypeSerializer
from varvite.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper
from varvite.spark_integration.api.job_client import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.options.configuration import ConfigOption, ConfigOptions, Configuration
from varvite.spark_integration.options.execution_config import ExecutionConfig
from varvite.spark_integration.options.flink_values import (
    ExecutionMode,
    InputDependencyConstraint,
    RestartStrategies,
    RestartStrategyConfiguration,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "ExecutionMode",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
