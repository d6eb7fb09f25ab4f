"""Cases that are resumed, chosen and left out, and the page that shows what was measured."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

from benchmarks import ack_state_size, materializer_speed, recovery, requests_and_bill, space
from benchmarks import trigger_interval as trigger
from benchmarks.harness import case_runs, report_page
from benchmarks.harness.case_runs import Benchmark, is_among, runnable, verdict
from benchmarks.harness.report import Cases, read_cases, write_cases

PROGRAMS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (ack_state_size, trigger, requests_and_bill, recovery, space, materializer_speed)
}


def small(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """A benchmark whose cases end at once; a case with 3 fails."""

    def run_alone(module: str, case: str) -> dict[str, Any] | None:
        ran.append((module, case))
        number = int(case[case.index(":") + 1 : -1])
        return None if number == 3 else {"number": number, "twice": 2 * number}

    monkeypatch.setattr(case_runs, "run_alone", run_alone)

    def tables(cases: Cases) -> list[Table]:
        table = Table("number", "twice")
        for c in cases:
            table.add_row(str(c["number"]), str(c["twice"]))
        return [table]

    return Benchmark(
        "small", "Small.", lambda tiny: [{"number": n} for n in ((1,) if tiny else (1, 2, 3))], lambda given: given,
        tables, lambda cases: [verdict("few", met=len(cases) < 5, found=str(len(cases)))], lambda cases, directory: [],
    )  # fmt: skip


def test_a_benchmark_goes_on_after_a_failed_case_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    program = small(ran, monkeypatch).command()
    results = tmp_path / "small.json"
    first = CliRunner().invoke(program, ["--results", str(results), "--tiny"])
    assert first.exit_code == 0, first.output
    assert "met: few — 1" in first.output
    second = CliRunner().invoke(program, ["--results", str(results), "--resume"])
    assert second.exit_code == 1
    assert "1 cases of small failed" in second.output
    assert [case for _, case in ran] == ['{"number": 1}', '{"number": 2}', '{"number": 3}']
    assert read_cases(results) == [{"number": 1, "twice": 2}, {"number": 2, "twice": 4}]


def test_only_some_cases_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    program = small(ran, monkeypatch).command()
    chosen = ["--results", str(tmp_path / "small.json"), "--only"]
    assert CliRunner().invoke(program, [*chosen, "number=2"]).exit_code == 0
    assert ran == [("benchmarks.small", '{"number": 2}')]
    wrong = CliRunner().invoke(program, [*chosen, "size=2"])
    assert wrong.exit_code == click.UsageError.exit_code
    assert "size is none of ['number']" in wrong.output


def test_a_case_is_known_by_its_parameters() -> None:
    assert is_among({"a": 1}, [{"a": 1, "figure": 2}])
    assert not is_among({"a": 1, "b": 1}, [{"a": 1, "figure": 2}])


def test_cases_on_s3_are_left_out_visibly_without_ceph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_runs, "missing", lambda kind: "deploy/install_ceph.sh" if kind == "s3" else "")
    shown = io.StringIO()
    left = runnable([{"storage": "s3"}, {"storage": "local"}, {"n": 1}], Console(file=shown, width=200))
    assert left == [{"storage": "local"}, {"n": 1}]
    assert "deploy/install_ceph.sh" in shown.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_cases_differ_and_tiny_ones_are_none_of_the_real_ones(name: str) -> None:
    benchmark = PROGRAMS[name]
    real, tiny = list(benchmark.cases(False)), list(benchmark.cases(True))
    assert len({str(sorted(case.items())) for case in real}) == len(real) > 0
    assert tiny
    assert not any(is_among(case, [*real]) for case in tiny)


def test_a_table_becomes_markdown() -> None:
    table = Table(title="Sizes")
    table.add_column("name")
    table.add_column("size", justify="right")
    table.add_row("a", "1")
    assert report_page.markdown(table) == ["**Sizes**", "", "| name | size |", "| --- | ---: |", "| a | 1 |"]


def test_the_page_has_the_findings_first_and_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    assert "no results" in report_page.page(tmp_path)
    sizes = [
        {"state_keys": keys, "ack_ms_p50": 2.0, "ack_ms_p99": 4.0, "durable_ms_p50": 5.0, "durable_ms_p99": 20.0,
         "batch_ms_p50": 200.0, "batch_ms_p99": 300.0, "written_bytes_p50": 1000.0, "log_commits": 3}
        for keys in (1_000, 100_000)
    ]  # fmt: skip
    case = {"backend": "rocksdb", "storage": "local", "keys": 100_000, "changed": 100, "batches": 3, "sizes": sizes}
    case |= {"plain_ms_p50": 1.0, "plain_ms_p99": 2.0}
    write_cases(tmp_path / "ack_state_size.json", [case])
    text = report_page.page(tmp_path)
    assert "- ack_state_size: met: rocksdb on local: the time to a durable checkpoint is flat" in text
    assert "NOT met: rocksdb on local: p99 <= 3 x median — at most 4.00x" in text
    assert text.index("## Targets") < text.index("## ack_state_size")
    assert "| 100,000 | 2.0 | 4.0 |" in text
    assert "![ack_state_size](ack_state_size.png)" in text
    assert (tmp_path / "ack_state_size.png").stat().st_size > 0
    assert "## smoke" not in text
