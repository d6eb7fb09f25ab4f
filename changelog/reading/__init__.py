"""The state of a checkpoint for readers: as Arrow tables, as a change feed, compared with another checkpoint.

Invariants: I5 (what is read is base plus log), I7 (a pin keeps what is read), I8, I10 (one tile on disk, one record
batch in memory).

| module | owns |
|---|---|
| `change_feed` | the changes of each batch, from the log |
| `checkpoints` | looking up the checkpoint that a reader names |
| `columns` | the rows of one state as record batches |
| `diff` | the differences of two checkpoints |
| `json_text` | plain values as JSON |
| `key_hash` | Spark's hash of a key, without Spark |
| `operator_state_diff` | the differences in non-keyed state |
| `operator_state_table` | non-keyed states as tables |
| `readable_columns` | stored values as columns that any tool reads |
| `reader` | `open_state`: the state of a job at a checkpoint |
| `shared_columns` | rows of several states in one table |
| `sizes` | the sizes of states per key group |
"""
