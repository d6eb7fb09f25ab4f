"""Files as output, exactly once.

Invariants: I1 and I2 as every sink, I8 (framed markers).

| module | owns |
|---|---|
| `catalog_table` | tables of Spark's catalogue that are files |
| `file_sink` | the sink, and the markers of its directory |
| `row_file_sink` | lines of text, by PyFlink's builders |
| `parquet_file` | a table as the Parquet file that Spark would write |
| `spark_file_log` | Spark's log of the files that count |
"""
