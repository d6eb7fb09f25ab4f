"""The user's handles of keyed state with TTL: values carry a time stamp, and reads hide what has expired.

Invariants: I5 (stamps come from the batch's time, its watermark and its rows, never from a clock).

| module | owns |
|---|---|
| `expiry` | the batch's limit of life, the stamp of its writes, the rules of reads |
| `value` | value state, and the cell of reducing and aggregating state |
| `list` | list state |
| `map` | map state |
| `many_keys` | `get_many`, `put_many`, `remove_many` |
"""
