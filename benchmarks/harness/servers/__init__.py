"""Storage servers on the loopback, for tests, benchmarks and demos.

| module | owns |
|---|---|
| `azure` | Azurite |
| `ceph` | Ceph: a monitor, an object daemon and a gateway |
| `gcs` | fake-gcs-server, and an emulator that ignores conditions |
| `hdfs` | a NameNode and a DataNode |
| `kinds` | a server by the name of its storage |
| `process` | a server in a process of its own, and its port |
| `s3rver` | s3rver, an S3 server that ignores conditions |
| `seaweedfs` | SeaweedFS, an S3 server |
"""
