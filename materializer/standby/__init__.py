"""Copies of a job's state that are kept current on a host, for state workers that may have to start there.

Invariants: I5 (only final commits are folded), I9 (copies are a cache), I10 (copies are evicted by age and size).

| module | owns |
|---|---|
| `follower` | rounds over a job's partitions |
| `members` | the partitions of each of several standbys |
| `record` | the record of a host's copies in the storage |
"""
