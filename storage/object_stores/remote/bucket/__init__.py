"""The settings of a bucket, container or directory that concern a job: they may delete its objects, keep or bill them.

| module | owns |
|---|---|
| `client` | the client of these requests |
| `readers` | the requests that read the settings, for each storage |
| `remarks` | the meaning of settings for a job |
| `settings` | the settings, the same for all storages |
| `uploads` | uploads in parts that nobody has completed |
"""
