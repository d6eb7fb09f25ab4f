"""Keeping and deleting: snapshots, pins, savepoints, copies of states, and the garbage collector.

Invariants: I7 (nothing needed is deleted; no safety rests on a clock), I8 (a pin or savepoint that cannot be read stops
every collection).

| module | owns |
|---|---|
| `collect_decision` | the decisions about what may be deleted |
| `collector` | the garbage collector |
| `pins` | pins: a reader keeps a commit complete |
| `savepoints` | native savepoints and holds |
| `snapshots` | publishing and reading snapshot descriptors |
| `state_copy` | copying or sharing the state of a commit |
"""
