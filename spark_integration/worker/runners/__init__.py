"""Runners of user functions over Arrow batches, against the state of a partition.

Invariants: I5 (time is the batch's), I10 (output leaves in pieces).

| module | owns |
|---|---|
| `broadcast` | functions with a broadcast stream |
| `checkpoints` | `initialize_state` and `snapshot_state` |
| `operator` | keyed functions, row at a time |
| `output_times` | event times of what a function yields |
| `timer_hearing` | if timers have an effect |
| `timers` | due timers of a batch |
| `vectorized` | functions that take whole batches |
"""
