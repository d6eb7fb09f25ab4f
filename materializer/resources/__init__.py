"""Limits and local resources that all parts of a materializer share.

Invariants: I9 (the workspace is a cache), I10 (bandwidth, disk and memory are bounded).

| module | owns |
|---|---|
| `allocator` | returning freed memory to the system |
| `bandwidth` | the limit on bytes per second |
| `interruptible_store` | an object store that checks the stop flag |
| `process_name` | the name of this process, for people |
| `recent_entries` | an object store with the newest entries of the chain in memory |
| `stop_signal` | the stop flag, and signals that set it |
| `workspace` | the local directory: copies of ranges and scratch space |
"""
