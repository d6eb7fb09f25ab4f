"""The protocol of sinks of tables: processes killed, or stopped and woken beside their successor, at any moment."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable

from tests.integration.sink_trial import Trial
from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.stores.postgres_server import Server

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
with_kills = pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.rare)])


@with_kills
@pytest.mark.parametrize("keys", ["", "value"])
def test_a_delta_table_loses_and_doubles_nothing(tmp_path: Path, keys: str, kills: int) -> None:
    path = str(tmp_path / "table")
    trial = Trial(tmp_path / "home", 1, "delta", path, keys)
    trial.run(kills)
    values = DeltaTable(path).to_pyarrow_table().column("value").to_pylist()
    assert trial.figures(values) == (0, 0)
    assert trial.words()["REDONE"] + trial.words()["ADOPTED"] > kills // 4
    assert not trial.words()["Traceback"]


@pytest.mark.postgres
@with_kills
@pytest.mark.parametrize("keys", ["", "value"])
def test_a_postgres_table_loses_and_doubles_nothing(postgres: Server, tmp_path: Path, keys: str, kills: int) -> None:
    conninfo = postgres.new_database()
    trial = Trial(tmp_path / "home", 1, "postgres", conninfo, keys)
    trial.run(kills)
    with psycopg.connect(conninfo) as connection:
        values = [value for (value,) in connection.execute("select value from output").fetchall()]
    assert trial.figures(values) == (0, 0)
    assert trial.words()["REDONE"] + trial.words()["ADOPTED"] > kills // 4
    assert not trial.words()["Traceback"]


@with_kills
@pytest.mark.parametrize("keys", ["", "value"])
def test_an_iceberg_table_loses_and_doubles_nothing(tmp_path: Path, keys: str, kills: int) -> None:
    warehouse = Warehouse(tmp_path / "iceberg")
    trial = Trial(tmp_path / "home", 1, "iceberg", str(tmp_path / "iceberg"), keys)
    trial.run(kills)
    values = [value for (value,) in warehouse.rows("value")]
    warehouse.close()
    assert trial.figures(values) == (0, 0)
    assert trial.words()["REDONE"] + trial.words()["ADOPTED"] > kills // 4
    assert not trial.words()["Traceback"]
