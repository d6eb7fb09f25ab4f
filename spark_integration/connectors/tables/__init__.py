"""Tables as output, exactly once: the batch's commit is noted in the transaction that writes its rows.

Invariants: I1 and I2 as every sink; I6: a driver that was replaced cannot write any more.

| module | owns |
|---|---|
| `table_sink` | the decisions that all tables have in common |
| `delta_sink` | Delta, which needs the extra `delta` |
| `iceberg_sink` | Iceberg, which needs the extra `iceberg` |
| `postgres_sink` | PostgreSQL, which needs the extra `postgres` |
| `jdbc_sink` | PyFlink's JdbcSink, over PostgreSQL |
| `postgres_columns` | its columns, and rows as text |
"""
