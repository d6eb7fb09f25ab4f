"""The rows of a batch, as sinks take them.

Invariants: I2 (the loss of rows that Spark has kept is raised as it is), I10 (rows come in pieces).

| module | owns |
|---|---|
| `table` | the output of a small batch, as an Arrow table and as a DataFrame |
| `rows` | rows in pieces of Arrow, of a small batch and of a DataFrame |
"""
