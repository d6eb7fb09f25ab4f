"""Sources of streams beside DataFrames: collections, and those of PyFlink's names over Spark's own.

| module | owns |
|---|---|
| `stream_source` | the contract of a source, and the step that makes elements of its bytes |
| `input_rows` | the rows of all sources of a job |
| `collection` | a collection as a stream |
| `numbers` | numbers in a row |
| `text_files` | lines of text files |
"""
