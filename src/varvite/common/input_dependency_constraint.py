"""`pyflink.common.input_dependency_constraint`'s names."""

from varvite.spark_integration.options.flink_values import InputDependencyConstraint

__all__ = ["InputDependencyConstraint"]
