"""The state worker: one partition's state and functions, in a process of its own on an executor.

Invariants: I3 (an attempt is dropped as a whole), I4 (pending until confirmed), I5 (tile and log), I9 (local is cache).

| module | owns |
|---|---|
| `attempt` | one attempt of one (operator, partition), up to its outcome |
| `process` | the process, and the requests to it |
| `runners` | running user functions over Arrow batches |
| `state` | bringing state to a base, and changes into the log |
| `state_worker` | the operators of a partition; applies the outcome of the attempt that won |
"""
