"""`pyflink.metrics`' names, where its users look for them; no code of its own."""

from varvite.spark_integration.functions.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
