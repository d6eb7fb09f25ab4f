"""Messages of driver, pump and state worker, and errors that travel. All are of one version of varvite.

Invariants: I2 (one summary per attempt), I4 (a request names the attempt that won), I10 (figures are bounded).

| module | owns |
|---|---|
| `operator_summaries` | the summaries of an operator's partitions, in columns |
| `protocol` | requests, their answer's schema, names of columns |
| `requested_store` | the job's storage as a request describes it |
| `summary` | the result of one attempt |
| `user_errors` | errors of user code and of tasks, as text and pickled |
| `user_metrics` | what an attempt has measured in a metric of the user's |
| `worker_figures` | figures of attempts and uploads |
"""
