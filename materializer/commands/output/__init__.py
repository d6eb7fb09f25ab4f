"""Output and parameters that commands share.

| module | owns |
|---|---|
| `errors` | errors as text or JSON |
| `layout` | layout of tables |
| `lines` | structs and rows as tables or JSON lines |
| `parameters` | options of several commands, and opening a storage |
| `progress` | events and progress bars |
"""
