"""`pyflink.metrics.metricbase`'s names."""

from varvite.spark_integration.functions.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
