"""The driver's side of a job: one micro-batch after another, from Spark's rows to a durable commit and the sink.

Invariants: I1 (durable before acknowledged), I2 (winners only), I3 (every attempt on the same base), I6 (one
writer), I11 (no silent start).

| module | owns |
|---|---|
| `answer_size` | the decision if rows come to the driver with the summaries |
| `arrow_batch_limit` | the limit of Arrow batches in bytes, where rows are small |
| `batch_commit` | requests of a batch and its commit, without Spark; shared with the harness |
| `batch_executor` | attempts of a batch: all operators, one after another |
| `cancellation` | the end of a batch that does not end by itself |
| `coordinator` | a batch: base, attempts, commit, sink, acknowledge |
| `job_start` | opening a job, its origin, the checks before the first batch |
| `monitoring` | figures, metrics and health of a driver |
| `operator_executor` | one operator on a batch in Spark: shuffle, pump, cache, summaries |
| `operator_requests` | descriptions of an operator for tasks and for the chain |
| `query_progress` | Spark's progress of a query, in step with the chain |
| `placement` | the executors that partitions' tasks ask for |
| `services` | what runs beside the batches: snapshots, standbys, materializer, figures |
| `small_batches` | the driver's way of a small batch, past Spark's tasks |
| `snapshot_watch` | looking for published snapshots in the background |
"""
