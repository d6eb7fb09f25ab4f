"""Spark: the API of streams, what it becomes, and one micro-batch on a driver and its state workers.

The top layer, and the only one that imports pyspark.

Invariants: I1 (durable before acknowledged), I2 (winners only), I4 (pending until confirmed), I6 (one writer), I11 (no
silent start), on the side of the running query.

| module | owns |
|---|---|
| `api` | the environment, streams, writer and query that a program calls |
| `connectors` | sources, sinks, and files beside Spark's checkpoint |
| `driver` | one micro-batch on the driver |
| `elements` | rows on both sides of Arrow |
| `functions` | what a program implements |
| `harness` | one operator without Spark, for tests |
| `messages` | what driver, task and state worker send each other |
| `operators` | operators that are more than one user function |
| `options` | settings of a job |
| `plan` | operators and the preparation of their input |
| `processes` | processes that user code forks |
| `transport` | the way to a state worker and back |
| `worker` | state and functions of one partition |
"""
