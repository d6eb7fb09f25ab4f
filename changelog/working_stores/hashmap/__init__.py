"""The working store in memory, of Python dicts.

Invariants: I5 (lazily loaded rows are those of the restored store; cleanup removes only values that no batch can see),
I9 (nothing is on disk), I10 (cleanup is bounded by the accesses).

| module | owns |
|---|---|
| `store` | the store |
| `tables` | tables of values, maps and lists |
| `lazy_groups` | key groups that are loaded at their first access |
| `cleanup` | incremental cleanup of expired values |
"""
