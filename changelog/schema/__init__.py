"""Schemas of states: the versions of a value type, and TTL; and the refusal of pickled types.

Invariants: I5 (a schema changes only in a batch, so state is a function of the log alone).

| module | owns |
|---|---|
| `history` | versions of a value type, and the reading of values of each |
| `ttl` | the TTL record of a schema |
| `pickled` | refusal of pickled state |
"""
