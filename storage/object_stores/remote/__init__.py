"""The store on a remote URL: S3 through obstore or s3fs, Google Cloud Storage, Azure, HDFS, and any of fsspec.

Invariants: I1 (the storage's own durability), I10 (retries, request sizes and timeouts are bounded).

| module | owns |
|---|---|
| `azure` | the dialect of Azure Blob Storage through adlfs |
| `bucket` | the settings of a bucket that concern a job |
| `dialect` | the differences between client libraries, and the dialect of any fsspec filesystem |
| `engine` | the choice of the client library for a URL |
| `errors` | the meaning of a client's exception: all error codes and exception names |
| `gcs` | the dialect of Google Cloud Storage through gcsfs |
| `hdfs` | the dialect of HDFS through hdfs-native |
| `obstore_s3` | the dialect of S3 and its clones through obstore |
| `process_clients` | the rule for clients in processes that fork |
| `protocols` | the protocols of remote storages in URLs |
| `s3` | the dialect of S3 and its clones through s3fs |
| `s3_options` | the options of S3 for obstore, made from those of s3fs |
| `store` | the store |
"""
