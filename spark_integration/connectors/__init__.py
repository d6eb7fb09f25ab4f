"""Sources and sinks, and the files beside Spark's checkpoint.

Invariants: I1 and I2 in the contract of sinks, I8 (framed markers), I11 (Spark's progress is read, never assumed).

| module | owns |
|---|---|
| `sink` | the contract of a sink, and `foreachBatch` |
| `files` | files, exactly once |
| `kafka` | Kafka, exactly once |
| `tables` | tables, exactly once |
| `output` | the rows of a batch, as sinks take them |
| `several_sinks` | several sinks as one |
| `driver_sinks` | printing, collecting, and Spark's console, memory and foreach |
| `sources` | a collection as a stream, and PyFlink's sources |
| `heartbeats` | batches while the input is quiet |
| `spark_progress` | Spark's checkpoint location, read, and made from the chain |
| `private_location` | checkpoint locations of queries that name none |
| `running_query` | Spark's query while it runs |
| `sink_note` | the note of the last commit whose sink is done |
| `spark_watermark` | Spark's own watermark of a query |
| `hadoop_files` | small files by Hadoop's file systems |
| `state_table` | state as DataFrames |
"""
