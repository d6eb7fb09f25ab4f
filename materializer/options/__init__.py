"""Options of the materializer and of the driver, the table of all options, and a materializer's configuration.

Options that only the driver acts on are declared here, too: a sidecar is started with the job's own settings, and tells
a misspelt key from one that it has no use for.

| module | owns |
|---|---|
| `driver` | options that only the driver acts on |
| `materializer_config` | `MaterializerConfig`, and the options that its fields declare |
| `policy` | `MaterializePolicy`: triggers of a materialization, and the options that its fields declare |
| `start` | options of a job's start from a checkpoint or savepoint |
| `table` | `OPTIONS`: all options; a materializer's fields from `spark.varvite.*` keys |
"""
