"""One range of key groups: decide that it is due, fold its log into a local copy, publish the copy as a snapshot.

Invariants: I1 (a descriptor names only durable files), I5 (base plus log), I7 (only final commits are folded, and
files are shared only with the tile to be replaced), I9 (the local copy is a cache), I10 (triggers bound the log).

| module | owns |
|---|---|
| `base_sizes` | stored bytes of the bases |
| `chain_view` | following a job's chain, and its newest final commit |
| `context` | the collaborators of a fold |
| `local_copy` | the local RocksDB copy of a range, caught up or restored |
| `log_index` | length of any range's log |
| `parts` | the parts of a range that are folded by turns |
| `plan` | the ranges of a job |
| `policy` | the triggers: is a range due? |
| `publication` | the decision to publish, and the files to upload |
| `range_fold` | fold, checkpoint, upload and publish of one range |
| `recovery_estimate` | estimated restore time |
| `retry` | failures in a row and the pause before the next try |
"""
