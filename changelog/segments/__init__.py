"""The changes of a batch: in memory, as Arrow columns, as segments; and their replay into a store.

Invariants: I2 (a segment carries the attempt's tag), I5 (what is decoded equals what was encoded; every row that counts
is applied once, in order), I8 (segments are verified), I10 (reads ahead and folds are bounded).

A *piece* is a bounded number of rows of a segment that are decoded together.

| module | owns |
|---|---|
| `batch` | batches and their time, in the form that stores fold |
| `changes` | the rows of one batch and state |
| `column_changes` | changes made as Arrow columns |
| `columns` | rows as an Arrow stream, and back |
| `decoded_changes` | changes read from a segment |
| `replay` | the replay of segments into a store |
| `segment` | encoding and decoding of segments |
| `source` | reading the segments of a replay |
| `stream_size` | size of a stream before it is decompressed |
"""
