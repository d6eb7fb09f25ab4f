"""`pyflink.datastream.formats`' modules; what cannot be used says so when it is used.

| module | owns |
|---|---|
| `avro` | `AvroBulkWriters`, `AvroInputFormat`, `AvroRowDeserializationSchema` |
| `csv` | `CsvBulkWriters`, `CsvReaderFormat`, `CsvRowDeserializationSchema` |
| `json` | `JsonRowDeserializationSchema` |
| `orc` | `OrcBulkWriters` |
| `parquet` | `AvroParquetReaders`, `AvroParquetWriters`, `ParquetBulkWriters` |
"""

__all__ = []
