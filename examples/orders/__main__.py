"""`make demo-kafka`: orders from Kafka through keyed state to Kafka, with a live table, checked at the end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.orders.broker import Broker, is_installed
from examples.orders.topics import TotalsReader, make_topics, sum_of_orders, write_orders

TIME_MAX_S = 900
TOP = 8
SEED = 17


def best_customers(reader: TotalsReader) -> Table:
    """The customers who have spent most, so far."""
    table = Table(title="totals, as committed")
    table.add_column("customer")
    table.add_column("orders", justify="right")
    table.add_column("spent", justify="right")
    for customer, (orders, cents) in sorted(reader.totals.items(), key=lambda entry: -entry[1][1])[:TOP]:
        table.add_row(customer, f"{orders:,}", f"{cents / 100:,.2f}")
    return table


class Driver:
    """The process of the job, which is started again whenever it was killed."""

    def __init__(self, work: Path, servers: str) -> None:
        self._work = work
        self._servers = servers
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in (str(Path.cwd()), os.environ.get("PYTHONPATH", "")) if p)
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
        with (self._work / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "examples.orders.job", str(self._work), self._servers],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def check(self) -> None:
        """Raise `ClickException` if it has ended by itself."""
        if self.process.poll() is not None:
            tail = (self._work / "driver.log").read_text(errors="replace")[-3000:]
            raise click.ClickException(f"the driver ended with code {self.process.returncode}:\n{tail}")

    def kill(self) -> None:
        """Kill it with SIGKILL, and start it again."""
        self.process.kill()
        self.process.wait()
        self.process = self._started()

    def end(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.wait()


@click.command()
@click.option("--events", default=1_000_000, show_default=True, help="Orders.")
@click.option("--customers", default=20_000, show_default=True, help="Keys.")
@click.option("--kills", default=0, show_default=True, help="Kill the driver with SIGKILL so often, at random moments.")
def main(events: int, customers: int, kills: int) -> None:
    """Write orders to a Kafka broker of its own, and let a job count them per customer, exactly once."""
    if not is_installed():
        raise click.ClickException("Kafka is not installed here: type deploy/install_kafka.sh .kafka")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="varvite-orders-") as directory:
        work = Path(directory)
        broker = Broker(work / "kafka")
        console.print("starting a Kafka broker and Spark")
        broker.start()
        try:
            run(console, work, broker.servers, events, customers, kills)
        finally:
            broker.end()


def run(console: Console, work: Path, servers: str, events: int, customers: int, kills: int) -> None:
    """The demo, on a broker that runs."""
    make_topics(servers)
    rng = random.Random(SEED)
    moments = sorted(rng.randrange(events) for _ in range(kills))
    columns = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns)
    written, counted = progress.add_task("orders written", total=events), progress.add_task("counted", total=events)
    reader, driver = TotalsReader(servers), Driver(work, servers)
    writer = threading.Thread(
        target=write_orders,
        args=(servers, events, customers, SEED, lambda count: progress.update(written, completed=count)),
        daemon=True,
    )
    writer.start()
    deadline_s = time.monotonic() + TIME_MAX_S
    began_s = 0.0
    try:
        with Live(console=console, refresh_per_second=4) as live:
            while reader.count < events or reader.read(1.0):
                reader.read(0.2)
                began_s = began_s or (time.monotonic() if reader.count else 0.0)
                progress.update(counted, completed=reader.count)
                live.update(Group(progress, best_customers(reader)))
                if moments and reader.count > moments[0]:
                    moments.pop(0)
                    driver.kill()
                    live.console.print(f"kill -9 of the driver after {reader.count:,} orders; it starts again")
                driver.check()
                if time.monotonic() > deadline_s:
                    raise click.ClickException(f"the demo did not finish within {TIME_MAX_S} s")
    finally:
        driver.end()
        reader.close()
    rate = reader.count / max(time.monotonic() - began_s, 1e-9)
    expected = sum_of_orders(events, customers, SEED)
    if reader.count != events or reader.faults or reader.totals != expected:
        raise click.ClickException(
            f"{events:,} totals expected, {reader.count:,} read; {reader.faults:,} out of order; "
            f"{sum(reader.totals.get(key) != total for key, total in expected.items()):,} customers are wrong"
        )
    console.print(f"\n[green]all {events:,} orders are counted once, {rate:,.0f} per second since the first total")


if __name__ == "__main__":
    main()
