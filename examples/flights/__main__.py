"""`make demo` and `make demo-crash`: a year of flights through a job with keyed state, checked at the end."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pyarrow.dataset as ds
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.chaos import (
    DRIVER,
    PYTHON_WORKER,
    SIDECAR,
    STATE_WORKER,
    Chaos,
    Kill,
    kill_python_worker,
    kill_state_worker,
    kill_tree,
)
from examples.flights.data import load_flights, write_stream
from examples.flights.expected import differences, expected_output, expected_state
from examples.flights.job import JOB
from examples.flights.report import show_aircraft, show_checkpoints, show_materializations
from examples.flights.storage import LOCAL, SERVERS, Storage, opened
from examples.flights.stored_state import read_aircraft

POLL_S = 0.2
TIME_MAX_S = 900
RESTARTS_MAX = 12


class Demo:
    """The processes of one run, and where they keep things."""

    def __init__(self, console: Console, work: Path, storage: Storage, seed: int | None) -> None:
        self.console = console
        self.work = work
        self.storage = storage
        self._rng = random.Random(seed)
        self._is_crash = seed is not None
        self._seed = seed or 0
        self._sidecar: subprocess.Popen[bytes] | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._restarts = 0

    def run(self, rows: int) -> None:
        """Start everything, and wait until the driver has processed all rows."""
        chaos = Chaos.plan(self._seed, rows) if self._is_crash else Chaos([])
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._start_sidecar()
        self._start_driver()
        deadline_s = time.monotonic() + TIME_MAX_S
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("flights", total=rows)
            while not self._is_finished():
                if time.monotonic() > deadline_s:
                    raise click.ClickException(f"the demo did not finish within {TIME_MAX_S} s; see {self.work}")
                done = rows_done(self.work)
                progress.update(task, completed=done)
                kill = chaos.due(done)
                if kill is not None:
                    self._kill(kill)
                time.sleep(POLL_S)
            progress.update(task, completed=rows_done(self.work))
        if chaos.kills:
            self.console.print(f"[yellow]{len(chaos.kills)} planned kills came too late for this run")

    def materialize_once(self) -> None:
        """Does now what the sidecar would do at its next interval."""
        command = [*self._materializer(), "--once"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())

    def close(self) -> None:
        """End what is still running."""
        for process in (self._sidecar, self._driver):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _is_finished(self) -> bool:
        driver, sidecar = self._driver, self._sidecar
        if sidecar is not None and sidecar.poll() is not None:
            self._start_sidecar()
        if driver is None or driver.poll() is None:
            return False
        if driver.returncode == 0:
            return True
        self._restarts += 1
        if not self._is_crash or self._restarts > RESTARTS_MAX:
            tail = (self.work / "driver.log").read_text(errors="replace")[-3000:]
            raise click.ClickException(f"the driver ended with code {driver.returncode}:\n{tail}")
        self.console.print(f"driver ended with code {driver.returncode}: starting it again")
        self._start_driver()
        return False

    def _kill(self, kill: Kill) -> None:
        time.sleep(kill.delay_s)
        hit = True
        if kill.victim == DRIVER and self._driver is not None:
            kill_tree(self._driver.pid)
        elif kill.victim == SIDECAR and self._sidecar is not None:
            self._sidecar.kill()
            self._sidecar.wait()
        elif kill.victim == STATE_WORKER:
            hit = kill_state_worker(self.work, self._rng)
        elif kill.victim == PYTHON_WORKER and self._driver is not None:
            hit = kill_python_worker(self._driver.pid, self._rng)
        self.console.print(f"kill -9 {kill.victim} after {kill.rows:,} flights{'' if hit else ' (none was there)'}")

    def _materializer(self) -> list[str]:
        base = [sys.executable, "-m", "varvite.materializer", "--storage", self.storage.url, "--job", JOB]
        options = [f"--storage-option={name}={text}" for name, text in self.storage.texts().items()]
        return [*base, *options, "--interval", "10 s", "--status-file", str(self.work / "materializer.jsonl")]

    def _start_sidecar(self) -> None:
        self._sidecar = self._spawn(self._materializer(), "sidecar.log")

    def _start_driver(self) -> None:
        self._driver = self._spawn([sys.executable, "-m", "examples.flights.driver", str(self.work)], "driver.log")

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.work / log).open("ab") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment()
            )


def environment() -> dict[str, str]:
    """The environment of the demo's processes: they find this very project."""
    path = os.pathsep.join(p for p in (str(Path.cwd()), os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}


def checkpoints(work: Path) -> list[dict[str, Any]]:
    """The statistics that the drivers have written; a line that a kill cut off is left out."""
    path = work / "checkpoints.jsonl"
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def rows_done(work: Path) -> int:
    """Rows in acknowledged batches."""
    return sum({row["batch"]: row["rows_in"] for row in checkpoints(work)}.values())


def check_output(work: Path, flights: pd.DataFrame) -> list[str]:
    """Differences between the rows in the output files and what they must be."""
    columns = ["id", "tailnum", "flights", "air_minutes", "delay_balance", "last_airport"]
    files = ds.dataset(work / "output", format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    found = files.to_table(columns).to_pandas().sort_values("id", kind="stable").reset_index(drop=True)
    expected = expected_output(flights)
    problems: list[str] = []
    if len(found) != len(expected):
        problems.append(f"{len(expected):,} output rows expected, {len(found):,} found")
    if found["id"].duplicated().any():
        problems.append(f"{int(found['id'].duplicated().sum()):,} output rows are there twice")
    if not problems:
        found["tailnum"] = found["tailnum"].astype(object).where(found["tailnum"].notna(), None)
        wrong = [c for c in columns if not found[c].equals(expected[c].astype(found[c].dtype).reset_index(drop=True))]
        problems += [f"output column {column} differs" for column in wrong]
    return problems


@click.command()
@click.option("--crash", is_flag=True, help="Kill processes with SIGKILL at random moments.")
@click.option("--seed", type=int, help="Seed of the kills [default: random, printed].")
@click.option("--files", default=40, show_default=True, help="Files, and so micro-batches, to spread the flights over.")
@click.option("--keep", type=click.Path(path_type=Path), help="Work in this new directory and keep it.")
@click.option(
    "--storage", default=LOCAL, show_default=True, help=f"A URL, or a server to start here: {', '.join(SERVERS)}."
)
def main(crash: bool, seed: int | None, files: int, keep: Path | None, storage: str) -> None:
    """All flights that left New York in 2013, row by row through keyed state, with changelog and sidecar."""
    console = Console()
    if crash and seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
    with tempfile.TemporaryDirectory(prefix="varvite-demo-") as temporary:
        work = keep or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        with opened(storage, work) as place:
            place.write(work)
            run(console, work, place, seed if crash else None, files)


def run(console: Console, work: Path, storage: Storage, seed: int | None, files: int) -> None:
    """The whole demo in `work`."""
    started_s = time.monotonic()
    flights = load_flights()
    batches = write_stream(flights, work / "input", files)
    kind = storage.url.partition("://")[0] if "://" in storage.url else "local storage"
    console.print(f"{len(flights):,} flights in {batches} files; changelog on, RocksDB, {kind}, sidecar running")
    if seed is not None:
        console.print(f"killing processes at random, seed {seed} (again with --crash --seed {seed})")
    demo = Demo(console, work, storage, seed)
    try:
        demo.run(len(flights))
        demo.close()
        demo.materialize_once()
    finally:
        demo.close()
    state, expected = read_aircraft(demo.storage), expected_state(flights)
    show_aircraft(console, state)
    show_checkpoints(console, checkpoints(work))
    show_materializations(console, work / "materializer.jsonl")
    problems = differences(expected, state) + check_output(work, flights)
    for problem in problems[:20]:
        console.print(f"[red]{problem}")
    if problems:
        raise click.ClickException(f"{len(problems)} differences from what pandas computed")
    console.print(
        f"[green]State of {len(state):,} aircraft and {len(flights):,} output rows equal what pandas computed "
        f"independently; no row is missing or there twice. {time.monotonic() - started_s:.0f} s."
    )


if __name__ == "__main__":
    main()
