"""Measurements of `make bench-smoke`, and their table."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from benchmarks.harness.report import read_cases, write_cases
from benchmarks.smoke import FLOOR, SYSTEMS, Run, chart_groups, every_run, summarize, tables
from benchmarks.workloads.input import Case
from benchmarks.workloads.jobs import JVM, ROW_FORM


def case(system: str, batch_ms: float, workload: str = "map-update") -> dict[str, Any]:
    return summarize(Run(workload, system, Case(1_000, 500), 1, 1), [batch_ms])


def test_a_run_is_the_same_in_the_process_that_measures_it() -> None:
    for run in every_run(all_sizes=True, is_tiny=False):
        assert Run.from_arguments(tuple(run.as_arguments())) == run


def test_the_summary_has_median_and_slowest_of_few_batches() -> None:
    found = summarize(Run("map-update", FLOOR, Case(1_000, 500, 2_000), 1, 4), [40.0, 10.0, 20.0, 30.0])
    assert (found["batch_ms_p50"], found["batch_ms_p99"], found["rows_per_s"]) == (20.0, 40.0, 50_000)
    assert (found["keys"], found["state_keys"], found["batches"]) == (500, 2_000, 4)


def test_a_resumed_run_leaves_out_what_is_there(tmp_path: Any) -> None:
    path = tmp_path / "results" / "smoke.json"
    assert read_cases(path) == []
    write_cases(path, [case(FLOOR, 10.0)])
    cases = read_cases(path)
    assert Run("map-update", FLOOR, Case(1_000, 500), 6, 20).is_in(cases)
    assert not Run("map-update", ROW_FORM, Case(1_000, 500), 6, 20).is_in(cases)
    assert not Run("list-append", FLOOR, Case(1_000, 500), 6, 20).is_in(cases)
    assert not Run("map-update", FLOOR, Case(1_000, 500, 600), 6, 20).is_in(cases)


def test_every_system_is_measured_and_has_its_peers_at_the_same_size() -> None:
    runs = every_run(all_sizes=False, is_tiny=False)
    assert {run.system for run in runs} == set(SYSTEMS)
    for workload in ("count-and-sum", "map-update", "list-append"):
        systems = {run.system for run in runs if run.workload == workload and run.case == Case(20_000, 20_000)}
        assert {"varvite-hashmap", "varvite-rocksdb", FLOOR, ROW_FORM} <= systems


def test_tiny_sizes_are_tiny() -> None:
    assert all(run.case.rows <= 5_000 and run.measured <= 2 for run in every_run(all_sizes=True, is_tiny=True))


def test_tables_compare_systems_of_one_size() -> None:
    cases = [case("varvite-hashmap", 10.0), case(ROW_FORM, 400.0), case(FLOOR, 5.0), case(JVM, 7.0, "count-and-sum")]
    first, second = tables(cases)
    assert str(first.title).startswith("map-update: 1,000 rows per batch")
    assert str(second.title).startswith("count-and-sum: ")
    shown = io.StringIO()
    Console(width=250, file=shown).print(first)
    line = next(line for line in shown.getvalue().splitlines() if "varvite-hashmap" in line)
    assert "40.00x" in line
    assert "2.00x" in line


def test_the_chart_has_the_fastest_first() -> None:
    groups = chart_groups([case(ROW_FORM, 400.0), case(FLOOR, 5.0)])
    assert groups == {"map-update, 1,000 rows, 500 keys": [(FLOOR, 200_000), (ROW_FORM, 2_500)]}
