"""The store on a local or network filesystem, and local files that are complete or absent.

Invariants: I1 (file and directories are synced before a write returns), I10 (temporary files and open directories are
bounded).

| module | owns |
|---|---|
| `direct_write` | writes past the page cache |
| `directories` | open directories that survive a crash |
| `errors` | the meaning of an OSError |
| `files` | local files that are complete or absent |
| `listing` | LIST on a directory tree |
| `store` | the store |
"""
