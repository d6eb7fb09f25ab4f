"""Runner of the programs of `make bench`: each case in a process of its own, results after each case, resumable."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.harness.report import Cases, read_cases, results_option, wide_console, write_cases
from benchmarks.harness.servers.kinds import missing
from benchmarks.harness.session import run_alone
from benchmarks.harness.storages import S3, s3_with_latency

Parameters = dict[str, Any]
"""Parameters that tell a case from the others of its benchmark; values as in JSON."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its cases, and their measurement."""

    name: str
    """Of its module, and of its results."""
    about: str
    cases: Callable[[bool], Sequence[Parameters]]
    """Cases that are measured; for True, with sizes that say nothing."""
    run_case: Callable[[Parameters], Figures]
    """Measure one case in this process."""
    tables: Callable[[Cases], list[Table]]
    findings: Callable[[Cases], list[str]]
    """Verdict on each target, a sentence each."""
    charts: Callable[[Cases, Path], list[Path]]
    """Draw them into a directory; gives the images."""
    durable_s3: bool = False
    """S3 cases keep more than fits into memory."""

    def command(self) -> click.Command:
        """The program."""

        @click.command(help=self.about)
        @click.option("--one", hidden=True, help="Run the case with this JSON in this process, print its JSON.")
        @click.option("--only", multiple=True, metavar="NAME=VALUE", help="Only the cases with this value.")
        @click.option("--resume", is_flag=True, help="Keep the cases of the results file and measure only the others.")
        @click.option("--tiny", is_flag=True, help="Sizes that say nothing, to see whether it runs.")
        @results_option(self.name)
        def main(*, one: str | None, only: tuple[str, ...], resume: bool, tiny: bool, results: Path) -> None:
            if one is not None:
                given = json.loads(one)
                sys.stdout.write(json.dumps(given | self.run_case(given)) + "\n")
                return
            wanted = [c for c in self.cases(tiny) if all(_has(c, condition) for condition in only)]
            self.measure(wanted, results, resume=resume)

        return main

    def measure(self, wanted: Sequence[Parameters], results: Path, *, resume: bool) -> None:
        """Measure what is wanted and not there yet; show all."""
        console, started = wide_console(), time.monotonic()
        cases = read_cases(results) if resume else []
        left = runnable([p for p in wanted if not is_among(p, cases)], console)
        needs_s3 = any(p.get("storage") == S3 for p in left)
        failed = 0
        with s3_with_latency(durable=self.durable_s3) if needs_s3 else nullcontext():
            for number, parameters in enumerate(left, 1):
                begun = time.monotonic()
                name = ", ".join(f"{key} {value}" for key, value in parameters.items())
                console.print(f"{self.name} {number}/{len(left)}: {name}")
                found = run_alone(f"benchmarks.{self.name}", json.dumps(parameters))
                if found is None:
                    failed += 1
                    console.print("  failed")
                    continue
                cases.append(found)
                write_cases(results, cases)
                console.print(f"  {time.monotonic() - begun:.0f} s")
        self.show(cases, results, console)
        console.print(f"{len(left)} cases in {time.monotonic() - started:.0f} s, written to {results}")
        if failed:
            sys.exit(f"{failed} cases of {self.name} failed")

    def show(self, cases: Cases, results: Path, console: Console) -> None:
        """Tables, findings and charts."""
        if not cases:
            return
        for table in self.tables(cases):
            console.print(table)
        for finding in self.findings(cases):
            console.print(f"- {finding}")
        self.charts(cases, results.parent)


def is_among(parameters: Parameters, cases: Cases) -> bool:
    """True if an earlier run has measured it."""
    return any(all(case.get(key) == value for key, value in parameters.items()) for case in cases)


def runnable(wanted: list[Parameters], console: Console) -> list[Parameters]:
    """Without the cases on a storage whose server is not installed."""
    commands = {storage: missing(storage) for storage in {p.get("storage", "") for p in wanted}}
    for storage, command in sorted(commands.items()):
        if command:
            console.print(f"without {storage}: its server is not installed; run {command}")
    return [p for p in wanted if not commands[p.get("storage", "")]]


def _has(parameters: Parameters, condition: str) -> bool:
    name, _, value = condition.partition("=")
    if name not in parameters:
        raise click.BadParameter(f"{name} is none of {sorted(parameters)}", param_hint="--only")
    return str(parameters[name]) == value


def verdict(target: str, *, met: bool, found: str) -> str:
    """A finding."""
    return f"{'met' if met else 'NOT met'}: {target} — {found}"
