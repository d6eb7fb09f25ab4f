"""`pyflink.common.restart_strategy`'s names."""

from varvite.spark_integration.options.flink_values import RestartStrategies, RestartStrategyConfiguration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]
