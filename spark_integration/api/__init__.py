"""The calls of a program: environment, streams, writer and query.

Data flows down from here: streams add nodes to the graph of `plan`, the writer plans it and starts the coordinator of
`driver`. Keeps I11 where a query starts: a program whose settings contradict each other is refused.

| module | owns |
|---|---|
| `environment` | settings, sources, `execute` |
| `session` | the session of a program that has none, and the Python of its workers |
| `stream` | `DataStream` and `KeyedStream` |
| `async_data_stream` | functions that wait for services |
| `spelling` | keywords in Spark's spelling |
| `windowed` | windows of a keyed stream, and of all elements |
| `connected` | two keyed streams for one function |
| `broadcast` | a stream beside a broadcast stream |
| `several_queries` | the queries of a program that writes several streams |
| `data_stream_sink` | PyFlink's end of a stream |
| `job_client` | PyFlink's handle of a running job |
| `execution_plan` | the program as JSON |
| `formats` | the formats of a writer, and their sinks |
| `writer` | the checks and the start of one query |
| `job_execution` | the queries of `execute`: sinks, defaults, collecting |
| `query` | the running query: its errors, its end |
"""
