"""A job's settings: levels of options, the resolved `JobConfig`, and PyFlink's objects that set options.

The options themselves are declared next to what they configure; `varvite.materializer.options.table` has them all.

Invariants: I11 (a misspelt key or a value that does not fit is an error, never a silent default).

| module | owns |
|---|---|
| `absent` | names of PyFlink's that varvite has nothing for |
| `checkpoint_config` | `CheckpointConfig`: PyFlink's checkpoint settings |
| `checkpoint_storage` | PyFlink's checkpoint storages: locations of checkpoints |
| `configuration` | `Configuration` and `ConfigOptions`: PyFlink's settings by key |
| `execution_config` | `ExecutionConfig`: PyFlink's settings of execution |
| `executor_share` | the share of a state worker in what is limited per executor |
| `format_options` | values of the options of a writer's format |
| `flink_values` | PyFlink's plain values that settings take, and its hints |
| `flink_keys` | keys of Flink's configuration without an option here |
| `job_config` | `JobConfig`: every setting of a job |
| `levels` | settings of the session, and query options told from a sink's |
| `progress_mode` | the way in which a query's progress is kept |
| `page` | the page `docs/reference/configuration.md` |
| `rocksdb_config` | settings and memory budget of the RocksDB stores |
| `state_backends` | PyFlink's state backends |
"""
