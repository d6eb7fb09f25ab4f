"""Options: kinds of values, one declaration per option, and the table that reads keys and values.

A `ConfigOption` is declared once, next to what it configures. From it come the field of a configuration (default and
check), the key `spark.varvite.*`, the option of the command line with its help and environment variable, and the line
of `docs/reference/configuration.md`. Nothing here needs Spark, so a sidecar reads the same declarations as the driver.

| module | owns |
|---|---|
| `declaration` | `ConfigOption`: one option, and the dataclass fields that it makes |
| `kinds` | kinds of values: boolean, duration, size, path, ports, ... |
| `table` | `OptionTable`: known keys, older keys, suggestions for misspelt ones; `OptionLevel` |
"""
