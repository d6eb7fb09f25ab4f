"""Built-in keyed functions: windows, aggregates, and Spark's stateful operations over varvite's state.

Invariants: I5 (results depend on state, rows, and the batch's time and watermark only).

| module | owns |
|---|---|
| `aggregation` | `aggregate`, in Arrow |
| `processors` | Spark's stateful processors |
| `windows` | windows and triggers |
"""
