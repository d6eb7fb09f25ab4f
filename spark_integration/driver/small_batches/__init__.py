"""The driver's way of a small batch: no shuffle, no cache, no second Spark job.

The driver collects the rows in one stage, splits them by partition, and gives them to the state workers itself, over
the sockets that Spark's tasks would use. Requests, answers, summaries and the commit are those of Spark's way, so any
attempt of any batch may take either way.

It is open where driver and executor are one process (local mode). State workers on other machines would need a port
with authentication, which is not built: there, every batch takes Spark's way.

| module | owns |
|---|---|
| `batch_size` | what Spark knows of a batch's size before it is read |
| `executor` | attempts of small batches: all operators, one after another |
| `partition_split` | rows by partition; pure |
| `partition_tasks` | requests to the state workers, a thread for each partition |
| `reading` | the rows of a batch, up to a limit; key groups by Spark's hash |
| `task_place` | the environment of Spark's Python workers, which state workers are to find |
| `way` | the choice of the way; pure |
"""
