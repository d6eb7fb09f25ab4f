"""`make demo-kafka`: orders from Kafka through keyed state to Kafka, with a live table, checked at the end."""

from __future__ import annotations

import random
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
from examples.orders.processes import CLUSTER, DRIVER, EXECUTOR, LOCAL, VICTIMS, Processes
from examples.orders.topics import TotalsReader, make_topics, sum_of_orders, write_orders

TIME_MAX_S, TIME_OF_KILL_MAX_S = 900, 60
BATCH_ROWS_MAX = 50_000
"""Rows of a batch; there are fewer if they are to be twice as many as kills."""
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


@click.command()
@click.option("--events", default=1_000_000, show_default=True, help="Orders.")
@click.option("--customers", default=20_000, show_default=True, help="Keys.")
@click.option("--kills", default=0, show_default=True, help="Kill processes with SIGKILL so often, at random moments.")
@click.option(
    "--victim", "victims", multiple=True, type=click.Choice(VICTIMS), default=[DRIVER], show_default=True,
    help="Kind of process that may be killed; several times for several kinds.",
)  # fmt: skip
def main(events: int, customers: int, kills: int, victims: tuple[str, ...]) -> None:
    """Write orders to a Kafka broker of its own, and let a job count them per customer, exactly once."""
    if not is_installed():
        raise click.ClickException("Kafka is not installed here: type deploy/install_kafka.sh .kafka")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="varvite-orders-") as directory:
        work = Path(directory)
        broker = Broker(work / "kafka")
        console.print("starting a Kafka broker and Spark")
        broker.start()
        rng = random.Random(SEED)
        plan = sorted((rng.randrange(events), rng.choice(victims)) for _ in range(kills))
        master = CLUSTER if EXECUTOR in victims else LOCAL
        batch_rows = min(BATCH_ROWS_MAX, max(1, events // (2 * kills + 1)))
        try:
            make_topics(broker.servers)
            processes = Processes(work, broker, (master, str(batch_rows)), rng)
            run(console, processes, broker.servers, events, customers, plan)
        finally:
            broker.end()


def run(
    console: Console, processes: Processes, servers: str, events: int, customers: int, plan: list[tuple[int, str]]
) -> None:
    """The demo, on a broker that runs.

    Args:
        console: The terminal.
        processes: Those of the demo.
        servers: Address of the broker.
        events: Number of orders.
        customers: Number of keys.
        plan: Kills, each as the number of orders that are counted before, and the kind of process.
    """
    columns = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns)
    written, counted = progress.add_task("orders written", total=events), progress.add_task("counted", total=events)
    reader = TotalsReader(servers)
    writer = threading.Thread(
        target=write_orders,
        args=(servers, events, customers, SEED, lambda count: progress.update(written, completed=count)),
        daemon=True,
    )
    writer.start()
    time_max_s = TIME_MAX_S + TIME_OF_KILL_MAX_S * len(plan)
    deadline_s = time.monotonic() + time_max_s
    began_s = 0.0
    try:
        with Live(console=console, refresh_per_second=4) as live:
            while plan or reader.count < events or reader.read(1.0):
                reader.read(0.2)
                began_s = began_s or (time.monotonic() if reader.count else 0.0)
                progress.update(counted, completed=reader.count)
                live.update(Group(progress, best_customers(reader)))
                if plan and reader.count > plan[0][0] and processes.kill(victim := plan[0][1]):
                    plan.pop(0)
                    live.console.print(f"kill -9 of the {victim} after {reader.count:,} orders; it starts again")
                processes.check()
                if time.monotonic() > deadline_s:
                    raise click.ClickException(f"the demo did not finish within {time_max_s} s")
    finally:
        processes.end()
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
