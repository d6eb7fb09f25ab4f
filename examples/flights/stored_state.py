"""Reads the job's state from its storage alone: newest checkpoint, tiles, log. No Spark, no job."""

from __future__ import annotations

from typing import Any

import varvite
from examples.flights.expected import Aircraft
from examples.flights.job import JOB, OPERATOR
from examples.flights.storage import Storage


def read_aircraft(storage: Storage) -> dict[str | None, Aircraft]:
    """The state of every aircraft at the newest checkpoint."""
    with varvite.open_state(storage.url, job=JOB, storage_options=storage.options) as state:
        tables = {schema.name: _by_key(state.to_arrow(OPERATOR, schema.name)) for schema in state.states(OPERATOR)}
    return {key: _aircraft(tables, key) for key in tables["flights"]}


def _by_key(table: Any) -> dict[Any, Any]:
    """The value of each key: of a map state a dict, of a list state a tuple."""
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    if "map_key" in columns:
        maps: dict[Any, dict[Any, Any]] = {}
        for key, map_key, value in zip(columns["key"], columns["map_key"], columns["value"], strict=True):
            maps.setdefault(key, {})[map_key] = value
        return maps
    if "position" in columns:
        lists: dict[Any, tuple[Any, ...]] = {}
        for key, value in zip(columns["key"], columns["value"], strict=True):
            lists[key] = (*lists.get(key, ()), value)
        return lists
    return dict(zip(columns["key"], columns["value"], strict=True))


def _aircraft(tables: dict[str, dict[Any, Any]], key: Any) -> Aircraft:
    return Aircraft(
        flights=tables["flights"][key],
        air_minutes=tables["air_minutes"][key],
        delay_balance=tables["delay_balance"][key],
        last_airport=tables["last_airport"][key],
        visits=tables["visits"][key],
        top_destinations=tables["top_destinations"][key],
    )
