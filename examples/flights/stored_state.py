"""Reads the job's state from its storage alone: newest checkpoint, tiles, log. No Spark, no job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from examples.flights.expected import Aircraft
from examples.flights.job import JOB, OPERATOR
from varvite.changelog.chain.reader import ChainReader, newest_commit
from varvite.changelog.restore.restore import RestoreTarget, restore_store
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_store


def read_aircraft(storage: str) -> dict[str | None, Aircraft]:
    """The state of every aircraft at the newest checkpoint."""
    store = JobStore(open_store(storage), JOB)
    record = read_job(store)
    reader = ChainReader(store, record.job_id)
    line = reader.load_line(newest_commit(reader.head()), record.max_parallelism)
    layout = next(o for o in line.commits[-1].operators if o.uid == OPERATOR)
    target = RestoreTarget(OPERATOR, layout.key_type, 0, record.max_parallelism)
    with tempfile.TemporaryDirectory(prefix="varvite-state-") as name:
        state = restore_store(line.view, target, store, Path(name) / "store", Path(name))
        try:
            tables = {schema.name: _read(state, schema) for schema in state.schemas}
        finally:
            state.close()
    return {key: _aircraft(tables, key) for key in tables["flights"]}


def _read(state: Any, schema: Any) -> dict[Any, Any]:
    if schema.kind == "map":
        found: dict[Any, Any] = {}
        for _, key, map_key, value in state.map_table(schema).items():
            found.setdefault(key, {})[map_key] = value
        return found
    if schema.kind == "list":
        return {key: tuple(elements) for _, key, elements in state.list_table(schema).items()}
    return {key: value for _, key, value in state.value_table(schema).items()}


def _aircraft(tables: dict[str, dict[Any, Any]], key: Any) -> Aircraft:
    return Aircraft(
        flights=tables["flights"][key],
        air_minutes=tables["air_minutes"][key],
        delay_balance=tables["delay_balance"][key],
        last_airport=tables["last_airport"][key],
        visits=tables["visits"][key],
        top_destinations=tables["top_destinations"][key],
    )
