"""Figures of a driver's jobs: for the query handle, for Prometheus, and for health checks.

| module | owns |
|---|---|
| `gauges` | log, base and working state of each operator |
| `user_metrics` | metrics of the users' functions |
| `metrics` | counters and histograms of all jobs of a process |
| `monitor` | the monitoring of one run, and the server that it shares |
| `operator_progress` | the job's operators in Spark's progress |
| `statistics` | figures of the last checkpoints |
| `warnings` | warnings about input and functions, each once |
"""
