"""Every type in every place and direction, with odd values: equal to Spark's own value, or refused with its column.

`docs/reference/values.md` has the result as a table, which this test writes if VARVITE_WRITE_PAGES is set.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.functions.values import (
    COLUMNS,
    INPUT,
    KEYS,
    LOCAL,
    NAMES,
    OUTPUT,
    OUTPUTS,
    SESSION,
    TYPED,
    TYPES,
    OnFrames,
    OnRows,
    input_table,
    spark_keeps,
    spark_takes_frame,
    spark_takes_row,
    told,
    varvite_keeps,
    varvite_takes_frame,
    varvite_takes_row,
)
from tests.spark.keyed_jobs import kill_parents
from tests.spark.programs.test_spark_programs import ROCKSDB
from tests.tidy.pages.doc_blocks import ROOT
from varvite import StreamExecutionEnvironment

pytestmark = pytest.mark.spark
PAGE = ROOT / "docs" / "reference" / "values.md"
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"
COUNT_MIN = 1500
"""Cells, at least."""


class Cell(NamedTuple):
    form: str
    direction: str
    kind: str
    place: str
    value: str


class Rule(NamedTuple):
    """Cells of which varvite makes something else than Spark, and what stands in the value then."""

    form: str
    direction: str
    kind: str
    value: str
    contains: str


ALL = ".*"
NO_VALUES = {("out", "binary", "map key", "bytearray"), ("typed", "string", "column", "surrogate")}
"""Python has no such key, and pandas no such column."""
DIFFERS = [
    Rule("rows", "out", "date", "NaT", "None"),
    Rule("rows", ".*state", "float|double", "-0.0", r"\b0\.0"),
    Rule("rows", ".*state", "timestamp", "fold 1", r"2024, 11, 3, 1, 30, fold=1"),
    Rule("frames", "out", "timestamp", "naive|pandas", r"2024, 7, 1, 10, 0, tzinfo"),
    Rule("frames", "out", "timestamp", "fold .", r"2024, 11, 3, 0, 30, tzinfo"),
    Rule("frames", "out", "timestamp", "gap", r"2024, 3, 10, 1, 30, tzinfo"),
    Rule("frames", "out", "timestamp", "session's fold", r"2024, 10, 27, 1, 30, tzinfo"),
]
"""Both take it, and the values differ. Each has a row in docs/reference/differences.md."""
TAKEN = [
    Rule("rows", "out", "timestamp.*", "NaT", "None"),
    Rule("rows", ".*state", "date|timestamp.*", "NaT", "None"),
    Rule(ALL, "out|typed", "date", "numpy", r"2024, 2, 29\b"),
    Rule("rows", "out", "timestamp.*", "numpy", r"2024, 7, 1, 12, 0\b"),
    Rule("frames", "out|typed", "timestamp", "numpy", r"2024, 7, 1, 10, 0, tzinfo"),
    Rule("frames", "out|typed", "timestamp_ntz", "numpy", r"2024, 7, 1, 12, 0\b"),
    Rule("frames", "out", "timestamp", "session's fold", r"2024, 10, 27, 1, 30, tzinfo"),
    Rule("frames", "out", "float|double", "NaN", r"\(nan, 1\)"),
    Rule("rows", ".*state", "decimal.*", "1", r"Decimal\('1'\)"),
    Rule("rows", ".*state", "float|double", "1", r"\b1\.0"),
    Rule("rows", ".*state", "double", "2\\^53\\+1", r"9007199254740992\.0"),
]
"""Spark refuses it, or makes null of it; varvite has the value that is meant."""


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """The session with zones of its own, and the input as a file."""
    settings = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB, "spark.sql.session.timeZone": SESSION}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    environment: dict[str, str] = spark.sparkContext.environment
    environment["TZ"] = LOCAL
    kill_parents(spark)
    (tmp_path / "in").mkdir()
    pq.write_table(input_table(), tmp_path / "in" / "0.parquet", coerce_timestamps="us")
    yield spark
    del environment["TZ"]
    kill_parents(spark)
    for name, value in before.items():
        spark.conf.set(name, value or "")


def on_spark(spark: SparkSession, path: Path) -> dict[Cell, str]:
    """Spark's value of each cell; one job for each form."""
    groups = spark.read.schema(INPUT).parquet(str(path / "in")).groupBy(*KEYS, "s")
    rows = groups.transformWithState(OnRows(spark_takes_row, spark_keeps), OUTPUT, "Append", "ProcessingTime")
    frames = groups.transformWithStateInPandas(OnFrames(spark_takes_frame), OUTPUT, "Append", "None")
    return {**cells("rows", rows.toArrow().to_pylist()), **cells("frames", frames.toArrow().to_pylist())}


def on_varvite(spark: SparkSession, path: Path) -> dict[Cell, str]:
    """varvite's value of each cell."""
    keyed = StreamExecutionEnvironment.get_execution_environment(spark)
    keyed.configure("execution.checkpointing.dir", str(path / "state")).set_parallelism(1)
    keyed.configure("materializer.mode", "off").configure("pipeline.heartbeat.enabled", "false")

    def run(form: str, program: Callable[[Any], Any]) -> dict[Cell, str]:
        received: list[dict[str, Any]] = []

        def keep(rows: DataFrame, batch: int) -> None:
            del batch
            received.extend(rows.toArrow().to_pylist())

        stream = keyed.from_dataframe(spark.readStream.schema(INPUT).parquet(str(path / "in")))
        writer = program(stream.key_by(*KEYS, "s")).foreach_batch(keep).query_name(form).trigger(availableNow=True)
        writer.option("checkpointLocation", str(path / form)).start().awaitTermination()
        return cells(form, received)

    on_rows, on_frames = OnRows(varvite_takes_row, varvite_keeps), OnFrames(varvite_takes_frame)
    return {
        **run("rows", lambda s: s.transform_with_state(on_rows, OUTPUT, "Append", "ProcessingTime", uid="v")),
        **run("frames", lambda s: s.transform_with_state_in_pandas(on_frames, OUTPUT, "Append", "None", uid="v")),
    }


def cells(form: str, rows: list[dict[str, Any]]) -> dict[Cell, str]:
    """The values that the output of a processor tells."""
    values: dict[Cell, str] = {}
    for row in rows:
        if row["report"]:
            values |= {Cell(form, *name.split("|")): value for name, value in ast.literal_eval(row["report"]).items()}
    for row in rows:
        if row["report"]:
            continue
        number, direction = int(row["row"]), "out"
        if number >= TYPED:
            number, direction = number - TYPED, "typed"
        for kind, place in COLUMNS:
            named = list(OUTPUTS[kind])
            if number < len(named) and (direction == "out" or place == "column"):
                cell = Cell(form, direction, kind, place, named[number])
                if cell[1:] not in NO_VALUES:
                    values.setdefault(cell, told(row[NAMES[kind, place]]))
    return values


def is_of(cell: Cell, rule: Rule) -> bool:
    pairs = zip((cell.form, cell.direction, cell.kind, cell.value), rule, strict=False)
    return all(re.fullmatch(pattern, text) for text, pattern in pairs)


def judged(cell: Cell, on_spark: str, on_varvite: str) -> tuple[str, str]:
    """The status of a cell (equal, refused, differs, taken), and what is wrong with it, if anything is."""
    if on_varvite.startswith("refused "):
        value = OUTPUTS[cell.kind][cell.value]
        parts = (rf"\b{NAMES[cell.kind, cell.place]}\b", value_in(value))
        missing = [part for part in parts if not re.search(part, on_varvite)]
        is_ours = on_varvite.startswith("refused InvalidRequestError: ")
        names_type = re.search(
            r"is declared \S|(not|be) a value of type \S|is of type \S|type \S+ does not", on_varvite
        )
        return "refused", "" if is_ours and names_type and not missing else f"names neither {missing}"
    if on_spark == on_varvite:
        return "equal", ""
    status, rules = ("taken", TAKEN) if on_spark.startswith("refused ") else ("differs", DIFFERS)
    fitting = [rule for rule in rules if is_of(cell, rule)]
    return status, "" if any(re.search(rule.contains, on_varvite) for rule in fitting) else "no rule says so"


def value_in(value: Any) -> str:
    """Pattern of what names this value in a message."""
    if isinstance(value, datetime | date):
        return str(value.year) if value == value else "NaT|None"  # noqa: PLR0124
    return re.escape(repr(value))


def table(statuses: dict[Cell, str]) -> str:
    """The table of the page."""
    headings = {
        "rows in": ("rows", "in"), "rows out": ("rows", "out"), "states": ("rows", ".*state"),
        "DataFrames in": ("frames", "in"), "DataFrames out": ("frames", "out|typed"), "keys": (ALL, "key|timer"),
    }  # fmt: skip
    lines = [f"| type | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    for kind in TYPES:
        line = [kind]
        for form, direction in headings.values():
            of_kind = [cell for cell in statuses if cell.kind == kind and re.fullmatch(form, cell.form)]
            chosen = [cell for cell in of_kind if re.fullmatch(direction, cell.direction)]
            places: dict[tuple[str, str], set[str]] = defaultdict(set)
            for cell in chosen:
                places[statuses[cell], cell.value].add(cell.place)
                places["any", cell.value].add(cell.place)
            odd: list[str] = []
            for status in ("differs", "taken", "refused"):
                named = [
                    value if found == places["any", value] else f"{value} ({', '.join(sorted(found))})"
                    for (of, value), found in places.items()
                    if of == status
                ]
                odd += [f"{status}: {', '.join(named)}"] if named else []
            line.append("; ".join(odd) or ("=" if chosen else "not possible"))
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines) + "\n"


@pytest.mark.long
def test_each_cell_equals_sparks_value_or_is_refused_with_its_column(session: SparkSession, tmp_path: Path) -> None:
    expected, received = on_spark(session, tmp_path), on_varvite(session, tmp_path)
    assert received.keys() == expected.keys()
    assert len(received) > COUNT_MIN
    verdicts = {cell: judged(cell, expected[cell], received[cell]) for cell in sorted(received)}
    wrong = [
        f"{cell}: {why}\n  Spark   {expected[cell][:300]}\n  varvite {received[cell][:600]}"
        for cell, (_, why) in verdicts.items()
        if why
    ]
    assert not wrong, "\n".join([f"{len(wrong)} cells", *wrong[:40]])
    made = table({cell: status for cell, (status, _) in verdicts.items()})
    head, rest = PAGE.read_text().split(BEGIN)
    written, tail = rest.split(END)
    if os.environ.get("VARVITE_WRITE_PAGES"):
        PAGE.write_text(f"{head}{BEGIN}\n{made}\n{END}{tail}")
    else:
        assert written.strip() == made.strip(), "VARVITE_WRITE_PAGES=1 writes the table"
