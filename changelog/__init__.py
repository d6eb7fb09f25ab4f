"""The log, and the state that it logs. Of varvite it imports `storage` only, and nothing of Spark.

Five packages are the log: how its chain is read (`chain`), written (`commit`), kept and deleted (`retention`), how
changes become segments and are replayed (`segments`), and how a store is restored (`restore`). The others are the
state: what it is, how a batch changes it, where it is kept. Words of the log are defined in `chain` and `commit`.

Invariants: I1 to I8 and I11, in the packages that the table names; I3 (a batch is never merged with an earlier
execution), I4 (changes are pending until confirmed) and I5 (base plus log) concern them all.

| module | owns |
|---|---|
| `api` | what users import: state interfaces, descriptors, TTL settings |
| `chain` | reading the chain: entries, views, tiles, retention bounds |
| `commit` | writing the chain: ownership, base, plan, packs, adoption |
| `keyed` | keyed state during a batch: overlays, handles, timers |
| `operator_state` | non-keyed state: backend, sections, images |
| `reading` | the state of a checkpoint for readers |
| `restore` | restoring and catching up working stores |
| `retention` | snapshots, pins, savepoints, the collector |
| `row` | `Row`; stored pickles name this path |
| `schema` | versions of a state's schema, TTL records |
| `segments` | changes, their encoding, their replay |
| `types` | the type system: stored and wire forms, Arrow columns |
| `working_stores` | confirmed state on an executor: contract, hash map, RocksDB |
"""
