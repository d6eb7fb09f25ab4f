"""Spark: environment and streams, process functions, micro-batch coordinator, state workers, placement, state reader.

The top layer and the only one that imports pyspark. Keeps I1 (durable before acknowledged), I2 (winners only), I4
(pending until confirmed), I6 (one writer) and I11 (no silent start) on the side of the running query.
"""
