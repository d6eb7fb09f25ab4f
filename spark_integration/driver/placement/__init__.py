"""Placement of partitions on executors, so that a partition stays with its state worker.

Invariants: I9 (correctness never depends on placement).

| module | owns |
|---|---|
| `anchor` | a table whose join gives tasks their executors |
| `anchors` | the anchors of a run, made anew when executors change |
| `decision` | which executor gets which partition; pure |
| `spark_internals` | calls of Spark's inner API, and the versions they were tried with |
| `standbys` | copies of state on hosts with a standby |
"""
