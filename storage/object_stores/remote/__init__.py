"""The store on any fsspec URL, above all S3 through s3fs.

Invariants: I1 (the storage's own durability), I10 (retries, request sizes and timeouts are bounded).

| module | owns |
|---|---|
| `dialect` | the differences between filesystems, and the default dialect |
| `errors` | the meaning of a filesystem's exception: all error codes and exception names |
| `s3` | the dialect of S3 and its clones |
| `store` | the store |
"""
