"""Batches while the input is quiet, so that timers fire.

Invariants: I8 (a framed marker), I11 (a contradiction is an error before the query starts).

| module | owns |
|---|---|
| `heartbeat` | the rows that make Spark run a batch |
| `source_marker` | the decision whether a query has them, kept |
"""
