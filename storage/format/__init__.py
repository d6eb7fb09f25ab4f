"""The formats of all objects of a job: names, container, records. Nothing here does I/O.

Invariants: I2 (a commit names one tag per partition), I7 (a name carries the only slot that may refer to it), I8
(everything is framed and verified).

| module | owns |
|---|---|
| `frame` | the container of an object: magic, version, checksums, header, blob |
| `identity` | an object's account of itself against its place |
| `inspection` | the classes of records and messages, before they are decoded |
| `layout` | the names of all objects of a job |
| `records` | the records of the chain and its companions, and their encoding |
"""
