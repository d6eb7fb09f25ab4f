"""The tables that the demo prints at its end."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.flights.expected import Aircraft

SHOWN = 10


def show_aircraft(console: Console, state: dict[str | None, Aircraft]) -> None:
    """The busiest aircraft."""
    table = Table(title=f"The busiest of {len(state):,} aircraft, read from the stored state")
    for column in ("aircraft", "flights", "in the air", "delay", "last"):
        table.add_column(column, justify="left" if column in ("aircraft", "last") else "right")
    table.add_column("most frequent destinations", no_wrap=True)
    known = [(key, aircraft) for key, aircraft in state.items() if key is not None]
    for key, a in sorted(known, key=lambda item: -item[1].flights)[:SHOWN]:
        hours, balance = f"{a.air_minutes / 60:,.0f} h", f"{a.delay_balance / 60:+,.0f} h"
        table.add_row(key, f"{a.flights:,}", hours, balance, a.last_airport, " ".join(a.top_destinations[:8]))
    console.print(table)


def show_checkpoints(console: Console, rows: list[dict[str, Any]]) -> None:
    """Cost of a checkpoint."""
    acks = [row["ack_ms"] for row in rows]
    sizes = [float(row["entry_bytes"] + row["uploaded_bytes"]) for row in rows]
    objects = [float(row["objects_written"]) for row in rows]
    table = Table(title=f"{len(rows)} checkpoints")
    for column in ("", "p50", "p99"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("acknowledge, ms", f"{_percentile(acks, 50):.1f}", f"{_percentile(acks, 99):.1f}")
    table.add_row("bytes written", f"{_percentile(sizes, 50):,.0f}", f"{_percentile(sizes, 99):,.0f}")
    table.add_row("objects written", f"{_percentile(objects, 50):.0f}", f"{_percentile(objects, 99):.0f}")
    batches = [row["batch_ms"] for row in rows]
    table.add_row("whole batch, ms", f"{_percentile(batches, 50):,.0f}", f"{_percentile(batches, 99):,.0f}")
    console.print(table)


def show_materializations(console: Console, path: Path) -> None:
    """Work of the sidecar."""
    events = [json.loads(line) for line in _lines(path)]
    materialized = [event for event in events if event["event"] == "materialized"]
    table = Table(title=f"{len(materialized)} materializations")
    for column in ("key groups", "at batch", "log before", "after", "changes folded", "ms"):
        table.add_column(column, justify="right")
    for event in materialized[-SHOWN:]:
        logs = (event["log_before"], event["log_after"])
        before, after = (f"{log['batches']} / {log['bytes'] / 1024:,.0f} KiB" for log in logs)
        groups = f"{event['low']}-{event['high'] - 1}"
        table.add_row(
            groups, str(event["at_batch"]), before, after, f"{event['mutations']:,}", f"{event['duration_ms']:,}"
        )
    console.print(table)
    collected = sum(event["deleted"] for event in events if event["event"] == "collected")
    console.print(f"{collected:,} objects of the truncated log were deleted")


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
