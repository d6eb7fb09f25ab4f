"""Keyed state during a batch: the handles of the user's functions, the pending changes, and the backend of both.

Invariants: I3 (a batch that is executed again starts from the same base), I4 (writes go to overlays alone, until
`fold`), I5 (changes are a function of the accesses and their order).

| module | owns |
|---|---|
| `backend` | the state of one (operator, partition) during a batch |
| `context` | the current key |
| `declaration` | a descriptor compared with the stored schema, migrations |
| `overlays` | pending changes |
| `value` | handle of value state, and the cell of all value-like states |
| `aggregating` | handles of reducing and aggregating state |
| `list` | handle of list state |
| `map` | handle of map state |
| `timers` | handle of timers |
| `in_place` | finds values that are changed in place and not updated |
| `ttl` | handles of state with TTL |
| `many_keys` | `get_many`, `put_many`, `remove_many` |
| `namespaces` | accumulators and lists by (key, namespace), such as windows |
| `namespaced_handles` | handles of all kinds of state by (key, namespace) |
| `view` | what a state holds, for tests and tools |
"""
