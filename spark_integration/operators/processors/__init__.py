"""Spark's `transformWithState` and `applyInPandasWithState` as keyed functions of varvite.

Invariants: I4 (no row is kept from batch to batch), I5 (time is the batch's).

| module | owns |
|---|---|
| `grouped_function` | functions that get all rows of a key in a batch |
| `stateful_processor` | `StatefulProcessor` |
| `group_state` | functions with a `GroupState` |
| `handle` | `StatefulProcessorHandle`: its states and timers |
| `keys` | keys as Spark gives them |
| `states` | value, list and map state with Spark's methods |
| `pandas_rows` | rows as DataFrames, and back |
"""
