"""`pyflink.datastream.stream_execution_environment`'s names."""

from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.common.io import InputFormat
from varvite.datastream.connectors.base import Source
from varvite.datastream.functions import SourceFunction
from varvite.datastream.utils import ResultTypeQueryable
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.job_client import JobClient, JobExecutionResult
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
from varvite.spark_integration.options.checkpoint_config import CheckpointConfig, CheckpointingMode
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
from varvite.spark_integration.options.execution_config import ExecutionConfig
from varvite.spark_integration.options.flink_values import SlotSharingGroup

__all__ = [
    "CheckpointConfig",
    "CheckpointingMode",
    "Configuration",
    "DataStream",
    "ExecutionConfig",
    "InputFormat",
    "JobClient",
    "JobExecutionResult",
    "ResultTypeQueryable",
    "RuntimeExecutionMode",
    "SlotSharingGroup",
    "Source",
    "SourceFunction",
    "StreamExecutionEnvironment",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
]
