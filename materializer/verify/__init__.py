"""Checks of everything that a job's retained checkpoints need, and the repair of damaged ones.

Invariants: it checks I2, I5, I7 and I8, and keeps I1, I6 and I7 in a repair.

| module | owns |
|---|---|
| `alternatives` | other ways to the state of a commit |
| `health` | whole, rebuildable or lost checkpoints |
| `repair` | rebuilding state as snapshots or as an entry |
| `savepoints` | checks of a savepoint |
| `verifier` | checks of a job |
"""
