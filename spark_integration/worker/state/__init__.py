"""Bringing a partition's state to a base, and an attempt's changes into the log or a snapshot.

Invariants: I1 (uploads are durable when a summary names them), I5 (tile and newer segments), I9 (local is cache).

| module | owns |
|---|---|
| `base_restore` | the working store at a request's base |
| `local_place` | the copy on the host that outlives the process |
| `log_parts` | the segment of an attempt, in parts |
| `non_keyed` | non-keyed state of an operator on a partition |
| `part_decision` | when a part is cut; pure |
| `snapshot` | the checkpoint with the changelog off |
| `stores` | opening working stores of every kind |
"""
