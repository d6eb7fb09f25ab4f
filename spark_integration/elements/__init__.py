"""Elements of a stream on both sides of Arrow: their types, their columns, and Python values of them.

| module | owns |
|---|---|
| `flink_types` | classes of PyFlink's types that are made otherwise here |
| `types` | the types of elements, and their schemas |
| `columns` | values of a type as columns |
| `formats` | elements as bytes and text |
| `arrow_rows` | rows from and to Arrow |
| `arrow_values` | Python values as Arrow columns |
| `input_errors` | the error of rows that cannot be read |
| `row_values` | rows as values of a state |
| `clock_times` | points in time and what clocks show |
| `grouped_rows` | the rows of a batch by key |
| `key_group_order` | the order in which a worker processes rows |
| `side_by_side` | rows of several streams in one |
| `arrow_task` | `mapInArrow`, and the Python worker around it |
"""
