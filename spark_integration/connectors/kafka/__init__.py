"""Kafka as output, exactly once, which needs the extra `kafka`; and what Spark's Kafka source does not notice.

Invariants: I1 and I2 as every sink; I6: a driver that was replaced cannot write any more; I8 (framed commits and
notes); I11 (topics are compared).

| module | owns |
|---|---|
| `sink` | the sink |
| `record_sink` | the sink by PyFlink's builders: elements as records |
| `record_source` | Spark's source by PyFlink's builders |
| `admin` | Kafka's admin client in the JVM |
| `offsets` | offsets to start from and to stop at |
| `settings` | what a user sets, and the client's configuration of it |
| `columns` | rows as messages |
| `producer` | a producer, and the transaction of a batch |
| `commit_topic` | the topic that notes the last commit of each job |
| `source_topics` | the topics that a job reads: which they are, and what of them is lost |
| `source_check` | the same, asked of Kafka |
| `client_errors` | errors of the client, and what to do |
"""
