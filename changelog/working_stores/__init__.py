"""Confirmed state of one (operator, partition) on an executor: in memory, in RocksDB, or in a user's own store.

Invariants: I4 (a store never sees pending changes), I5 (state is a function of the changes alone), I9 (a store is a
cache: it is rebuilt from snapshot and log).

| module | owns |
|---|---|
| `contract` | the interface of a working store and its tables |
| `options` | options that choose the store |
| `table_store` | the base class of stores that keep tables of rows |
| `table_rows` | rows of any table: copies, without expired ones |
| `memory_timers` | timers in memory |
| `timer_form` | a timer as bytes |
| `hashmap` | the store in memory |
| `rocksdb` | the store on RocksDB |
| `custom` | users' stores: factory, checks, filling |
"""
