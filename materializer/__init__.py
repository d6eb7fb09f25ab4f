"""The sidecar and the command `varvite`: fold a job's log into snapshots, publish them, collect the garbage.

`python -m varvite.materializer` runs the sidecar. Imports `varvite.changelog` and `varvite.storage`, never Spark: it
talks to a job only through the storage.

Invariants: I5 (base plus log), I7 (nothing needed is deleted), I9 (local is cache), I10 (bounded).

| module | owns |
|---|---|
| `__main__` | `python -m varvite.materializer` |
| `commands` | `varvite <command>`, one module per command |
| `fold` | one range: is it due, fold, publish |
| `monitoring` | events, metrics, health, HTTP server |
| `options` | configuration of a materializer |
| `ranges` | the unit of work: one operator's key groups |
| `resources` | stop flag, bandwidth, local directory |
| `restore` | setting a job back, and starting it from another state |
| `savepoints` | canonical savepoints: state as Parquet files |
| `service` | the process: loop over jobs, steps of a job |
| `standby` | copies of a job's state on a host |
| `verify` | checks of all stored objects, and repair |
"""
