"""Canonical savepoints: state as Parquet files, and snapshots built from them.

Invariants: I1 (the manifest is written last), I5 (reading back gives the same rows), I7 (a hold keeps the commit
meanwhile), I8 (files are checked as they are read).

| module | owns |
|---|---|
| `canonical` | writing a savepoint |
| `operator_tables` | files of non-keyed state |
| `parquet` | one state as a Parquet file, and back |
| `state_files` | files of a range, and snapshots built from files |
"""
