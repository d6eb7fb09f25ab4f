"""Transfers over any object store: claims, uploads, downloads and reads of slices.

Invariants: I1 (a claim or an upload succeeds only when it is durable), I8 (what is read is verified), I10 (every
transfer has limits).

| module | owns |
|---|---|
| `byte_budget` | the bytes in flight of several uploads |
| `claim` | put-if-absent with a known outcome |
| `download` | many files at once, verified |
| `hedged_claim` | a second request for a claim that hangs |
| `options` | options of uploads and downloads |
| `slice_reader` | verified slices of objects, with few requests |
| `upload` | many uploads at once, with retries and hedges |
"""
