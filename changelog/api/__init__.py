"""The interfaces of state as a user sees them, with PyFlink's names: states, their descriptors, functions and TTL.

Nothing here keeps state; `keyed` and `operator_state` implement it.

| module | owns |
|---|---|
| `state` | interfaces of keyed state |
| `operator_state` | interfaces of non-keyed state |
| `descriptors` | name, type, TTL and migration of a state |
| `functions` | `ReduceFunction`, `AggregateFunction` |
| `time_spans` | `Time`, `Duration` |
| `ttl_config` | `StateTtlConfig` |
| `batch_keys` | the keys of a batch, for methods for many keys |
| `checks` | checks of handles' arguments |
"""
