"""Sinks for a look at the output: elements on the driver, and those of Spark's formats and calls.

| module | owns |
|---|---|
| `element_sinks` | printing, collecting |
| `spark_sinks` | Spark's `console`, `memory` and `foreach` |
"""
