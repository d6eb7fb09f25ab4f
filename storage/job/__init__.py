"""One job of a storage: its record, its store, its log data, and the check before the first batch.

Invariants: I6 (the check refuses a storage that cannot fence), I7 (a clone can only read its source), I11 (a job that
is missing or stored in another way is an error, never an empty job).

| module | owns |
|---|---|
| `listing` | the jobs below a storage root, and a job by its name |
| `log_store` | the contract of a log store, and the log data of a job |
| `options` | options of the location of a job's objects, and of their encryption |
| `preflight` | the check of a storage before the first batch |
| `record` | `job.json`: reading it, and creating it once |
| `storage_choice` | encryption and log location of a job: chosen once, checked at each start |
| `store` | all objects of one job as a store |
"""
