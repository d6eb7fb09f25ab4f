"""Setting a stopped job back to a checkpoint, and starting a job from another state.

Invariants: I6 (a fence ends older runs), I11 (a mismatch with Spark's progress is an error).

| module | owns |
|---|---|
| `batch_input` | the identity of the rows that a batch reads |
| `decision` | the choice of the checkpoint |
| `job` | `varvite restore` of one job |
| `location_content` | the content of Spark's checkpoint location, made from the chain |
| `origin` | finding and copying the state at a location |
| `spark_files` | the formats of Spark's checkpoint location |
| `spark_location` | reading Spark's checkpoint location, and setting it back |
"""
