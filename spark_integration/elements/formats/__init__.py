"""Elements as bytes and text, under PyFlink's names: what sources read and sinks write.

| module | owns |
|---|---|
| `schemas` | the contracts, and schemas of text, bytes and single fields |
| `java_text` | values as text, as Java has it |
"""
