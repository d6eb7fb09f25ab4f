"""Bytes under names, durable: object stores, transfers, and the formats of all objects of a job.

The lowest package: it imports nothing else of varvite and knows nothing of the commit protocol.

Invariants, as far as bytes and names can keep them: I1 (durable before acknowledged), I6 (one writer), I7 (nothing
needed is deleted), I8 (read means verified).

| module | owns |
|---|---|
| `attempt_threads` | threads for calls that may hang |
| `clock` | clock and randomness as values that are passed in |
| `errors` | the error tree: each class says what the caller must do |
| `fail_point` | named places where a test may kill the process |
| `format` | names, container and records of all objects of a job |
| `job` | one job of a storage: its record, its store, its log, the check before the first batch |
| `named_objects` | user code that an option names as `module:qualified.name` |
| `object_stores` | the contract of an object store, and its implementations |
| `options` | declarations and kinds of options, without Spark |
| `private_directories` | the directories on local disks that processes work in |
| `transfer` | claims, uploads and downloads over any object store |
| `units` | durations and sizes as text |
| `visible_text` | control characters escaped, for terminals and logs |
"""
