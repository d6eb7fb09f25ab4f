"""The way from Spark's Python worker to the state worker's process and back: pump, sockets, frames.

Invariants: I2 (each execution has a new tag), I3 (a broken connection drops the attempt), I10 (limits of what is held).

| module | owns |
|---|---|
| `connection` | reaching a state worker, starting the parent if there is none |
| `executor_jvm` | finding the executor's JVM, and noticing its end |
| `home` | names, sockets and locks in the directory of an executor's state workers |
| `pump` | the function for `mapInArrow` |
| `segment_inbox` | segments that local workers hand to the driver past Spark |
| `wire` | frames and messages on a socket |
"""
