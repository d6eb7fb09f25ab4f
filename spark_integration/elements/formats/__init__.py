"""Elements as bytes and text, under PyFlink's names: what sources read and sinks write.

The conversions are Flink's: a field that does not fit is an error, or null with `ignore_parse_errors`.

| module | owns |
|---|---|
| `schemas` | the contracts, and schemas of text, bytes and single fields |
| `java_text` | values as text, as Java has it |
| `parsing` | text as values, as Java reads it |
| `json_rows` | rows as JSON |
| `csv_rows` | rows as CSV |
| `avro_rows` | rows as Avro, which needs the extra `avro` |
"""
