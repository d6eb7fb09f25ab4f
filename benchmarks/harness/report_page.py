"""`make bench` ends with it: one page with what every result file holds, `benchmarks/results/report.md`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from benchmarks import changelog_cost, smoke, state_access
from benchmarks.harness.case_runs import Benchmark
from benchmarks.harness.report import RESULTS, Cases

TARGETS = (
    "ack_state_size", "trigger_interval", "trigger_latency", "requests_and_bill", "recovery", "space",
    "materializer_speed",
)  # fmt: skip
"""Programs of `case_runs`, in the order of the page."""


@dataclass(frozen=True)
class Section:
    """The page's part about one benchmark."""

    name: str
    about: str
    tables: Callable[[Cases], list[Table]]
    findings: Callable[[Cases], list[str]]
    charts: Callable[[Cases, Path], list[Path]]


def sections() -> list[Section]:
    """All of them."""
    made = [section_of(importlib.import_module(f"benchmarks.{name}").BENCHMARK) for name in TARGETS]
    for module, tables in (
        (smoke, smoke.tables),
        (changelog_cost, lambda cases: [changelog_cost.table_of(c) for c in cases]),
        (state_access, _state_access_tables),
    ):
        name = module.__name__.rpartition(".")[2]
        made.append(Section(name, module.__doc__ or "", tables, _nothing_found, _drawn(f"{name}.png")))
    return made


def section_of(benchmark: Benchmark) -> Section:
    """Of a program of `case_runs`."""
    return Section(benchmark.name, benchmark.about, benchmark.tables, benchmark.findings, benchmark.charts)


def _state_access_tables(cases: Cases) -> list[Table]:
    stores = dict.fromkeys(c["store"] for c in cases)
    return [state_access.table_of(store, [c for c in cases if c["store"] == store]) for store in stores]


def _nothing_found(_: Cases) -> list[str]:
    return []


def _drawn(name: str) -> Callable[[Cases, Path], list[Path]]:
    """The chart that the program itself has drawn, if it has."""
    return lambda _, directory: [path] if (path := directory / name).exists() else []


def page(directory: Path) -> str:
    """The page of the result files in a directory; draws their charts there."""
    lines = [
        "# Measured",
        "",
        "Made by `python -m benchmarks.harness.report_page`; docs/reference/benchmarks.md explains the figures.",
        "",
    ]
    found: list[str] = []
    parts: list[str] = []
    for section in sections():
        path = directory / f"{section.name}.json"
        if path.exists():
            result: dict[str, Any] = json.loads(path.read_text())
            said = section.findings(result["cases"])
            found += [f"- {section.name}: {finding}" for finding in said]
            parts += section_lines(section, result, said, directory)
    if not parts:
        return "\n".join([*lines, f"There are no results in {directory.name}/ yet.", ""])
    return "\n".join([*lines, "## Targets", "", *found, "", *parts])


def section_lines(section: Section, result: dict[str, Any], said: list[str], directory: Path) -> list[str]:
    """The part of one benchmark."""
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    lines = [f"## {section.name}", "", section.about.strip(), "", f"Machine: {machine}.", ""]
    lines += [*(f"- {finding}" for finding in said), ""] if said else []
    for table in section.tables(result["cases"]):
        lines += [*markdown(table), ""]
    for chart in section.charts(result["cases"], directory):
        lines += [f"![{chart.stem}]({chart.name})", ""]
    return lines


def markdown(table: Table) -> list[str]:
    """A table as Markdown, its title as a line above."""
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    head = [str(column.header) for column in table.columns]
    ruler = ["---:" if column.justify == "right" else "---" for column in table.columns]
    title = [f"**{table.title}**", ""] if table.title else []
    return [*title, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in (head, ruler, *rows))]


@click.command()
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="The directory.")
def main(results: Path) -> None:
    """Write the page."""
    results.mkdir(parents=True, exist_ok=True)
    target = results / "report.md"
    target.write_text(page(results))
    click.echo(f"written to {target}")


if __name__ == "__main__":
    main()
