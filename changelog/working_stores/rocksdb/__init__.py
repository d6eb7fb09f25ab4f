"""The working store on RocksDB: confirmed state in a local directory, without a write-ahead log.

Invariants: I5 (rows depend on the changes and the confirmed state alone), I8 (a damaged block is an error, never a
missing row), I9 (a directory that a crash left is the state at some commit), I10 (memory and files are limited).

| module | owns |
|---|---|
| `store` | the store |
| `database` | one RocksDB directory: reads, writes, compactions, errors |
| `settings` | options of memory, disk and threads |
| `memory` | the memory that the stores of a process share |
| `keys` | keys and values as bytes |
| `metadata` | operator, states and version of a directory |
| `registry` | registered states, confirmed and pending |
| `tables` | reads of values, maps and lists, and their caches |
| `timers` | reads of timers |
| `state_form` | the encoding of a state's keys and values |
| `batch` | rows of changes, one by one |
| `columns` | rows of changes, as columns |
| `write_behind` | confirmed batches that are written later |
| `bulk` | directories from sorted rows |
| `sweep` | removal of expired values |
| `overlap` | the choice of files to rewrite |
"""
