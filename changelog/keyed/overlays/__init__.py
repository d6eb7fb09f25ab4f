"""The pending changes of a batch, by kind of state, laid over the confirmed tables of the working store.

Invariants: I4 (pending until confirmed: the tables change in `fold` alone), I5 (the rows of a batch follow from its
accesses and their order).

| module | owns |
|---|---|
| `base` | the base of all overlays, parts of a batch |
| `value` | value, reducing and aggregating state |
| `map` | map state |
| `list` | list state |
| `timers` | timers, and which are due |
| `recent_columns` | the columns of the last batch, read by the next |
"""
