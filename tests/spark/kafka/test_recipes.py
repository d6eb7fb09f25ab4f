"""The programs of the page of recipes, each run twice: the second run goes on where the first has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.kafka.kafka_jobs import KEYS
from tests.spark.rate_jobs import wait_for
from tests.stores.kafka_broker import Kafka
from tests.stores.postgres_server import Server
from tests.tidy.pages.doc_blocks import ROOT, blocks_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]
ENDS = (30, 60)


def payments(begin: int, end: int) -> list[dict[str, Any]]:
    return [{"key": f"card {i % KEYS}", "value": str(i)} for i in range(begin, end)]


@pytest.fixture
def run_page(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Callable[[int], bool], dict[str, str]], None]:
    """Runs the program that has a word, until the output is that of so many payments."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    topic = kafka.new_topic()
    page = blocks_of("docs/guide/recipes.md", (ROOT / "docs" / "guide" / "recipes.md").read_text())

    def run(word: str, is_done: Callable[[int], bool], places: dict[str, str]) -> None:
        (program,) = [block for block in page if "run" in block.tags and word in block.text]
        text = program.text
        places = {"localhost:9092": kafka.servers, '"subscribe", "payments"': f'"subscribe", "{topic}"', **places}
        places["s3://bucket/varvite"] = str(tmp_path / "state")
        for there, here in places.items():
            assert there in text
            text = text.replace(there, here)
        for begin, end in zip((0, *ENDS), ENDS, strict=False):
            kafka.put(topic, *payments(begin, end))
            names: dict[str, Any] = {"__name__": "page"}
            exec(compile(text, program.name, "exec", dont_inherit=True), names)
            wait_for(names["query"], lambda end=end: is_done(end), end)
            names["query"].stop()

    return run


def test_from_kafka_to_delta(run_page: Any, tmp_path: Path) -> None:
    table = tmp_path / "payments"

    def rows() -> list[dict[str, Any]]:
        return DeltaTable(str(table)).to_pyarrow_table().to_pylist() if (table / "_delta_log").exists() else []

    run_page('format("delta")', lambda end: len(rows()) >= end, {"s3://bucket/payments": str(table)})
    assert sorted(int(row["amount"]) for row in rows()) == list(range(ENDS[-1]))
    numbers = Counter((row["card"], row["number"]) for row in rows())
    assert numbers == Counter((f"card {i % KEYS}", i // KEYS + 1) for i in range(ENDS[-1]))
    assert DeltaTable(str(table)).metadata().partition_columns == ["day"]


@pytest.mark.postgres
def test_from_kafka_to_postgres(run_page: Any, postgres: Server) -> None:
    conninfo = postgres.new_database()

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo) as connection:
            is_there = connection.execute("select to_regclass('totals')").fetchall()[0][0]
            return connection.execute("select card, total from totals").fetchall() if is_there else []

    def is_done(end: int) -> bool:
        return sorted(rows()) == [(f"card {key}", sum(range(key, end, KEYS))) for key in range(KEYS)]

    run_page("PostgresSink", is_done, {"postgresql://user@localhost/shop": conninfo})
    assert is_done(ENDS[-1])
