"""Restoring a working store: `restore` makes one from tiles and log, `catch_up` brings one forward.

In signatures `objects` is the object store of the job, `state` a working store, `view` the commit to reach.

Invariants: I5 (tile, then the newer segments), I8 (files and segments are verified), I9 (local files are used only if
their version is on the line), I10 (downloads, replay and local copies are bounded).

| module | owns |
|---|---|
| `clip` | a RocksDB store from the snapshots that cover its range |
| `copies` | choosing among local copies |
| `files` | the files of a snapshot: description and fetching |
| `local` | the directories of local recovery |
| `options` | the options of local recovery |
| `part_replay` | replay by parts of the key groups |
| `restore` | the two verbs, `restore` and `catch_up` |
| `unconfirmed_mark` | the mark of a store that may hold a losing attempt |
"""
