"""`KeyedStream.aggregate`: aggregates of all keys of a batch at once, in Arrow.

Invariants: I5 (equal batches give equal results).

| module | owns |
|---|---|
| `aggregations` | what a user writes, checked |
| `accumulators` | the state and the results of each function |
| `column_aggregates` | the vectorised function over the accumulators |
| `map_side_combine` | the input before the shuffle, and when to combine it |
| `row_combiner` | combining in Arrow, in the tasks that read the input |
"""
