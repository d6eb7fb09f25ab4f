"""The command `varvite`: one module per command.

| module | owns |
|---|---|
| `cli` | `varvite`, and `varvite materialize` |
| `inspect` | `varvite jobs`, `checkpoints` and `sweep` |
| `output` | tables, JSON lines, progress, errors, shared parameters |
| `package` | `varvite package` |
| `pins` | `varvite pins` |
| `preflight` | `varvite preflight` |
| `repair_report` | output of `varvite verify --repair` |
| `restore` | `varvite restore` |
| `savepoints` | `varvite savepoint` |
| `standby` | `varvite standby` |
| `state` | `varvite describe`, `state` and `diff` |
| `verify` | `varvite verify` |
"""
