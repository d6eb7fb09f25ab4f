"""The options of the RocksDB store, as declared for the user and as rocksdict takes them.

| module | owns |
|---|---|
| `options` | `RocksDBOptions`, and their form in rocksdict |
| `memory_options` | options of the memory that stores share |
| `predefined` | sets of settings for kinds of disks |
"""
