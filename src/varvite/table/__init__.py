"""Stands for `pyflink.table`, which varvite does not have: an import of it says so."""

raise ImportError(
    "varvite has no pyflink.table: tables and SQL are Spark's. Read with spark.readStream or spark.sql, turn rows into "
    "a stream with env.from_dataframe(df), and write a stream's rows with stream.write_stream or stream.foreach_batch"
)
