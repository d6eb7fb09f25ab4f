"""Kafka as output, exactly once, which needs the extra `kafka`.

Invariants: I1 and I2 as every sink; I6: a driver that was replaced cannot write any more; I8 (framed commits).

| module | owns |
|---|---|
| `sink` | the sink |
| `settings` | what a user sets, and the client's configuration of it |
| `columns` | rows as messages |
| `producer` | a producer, and the transaction of a batch |
| `commit_topic` | the topic that notes the last commit of each job |
| `client_errors` | errors of the client, and what to do |
"""
