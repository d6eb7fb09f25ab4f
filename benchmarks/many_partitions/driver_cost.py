"""Cost of a batch for the driver, by parallelism, with simulated answers of tasks.

`python -m benchmarks.many_partitions.driver_cost` runs it.

It drives what the coordinator itself calls: decode and check the summaries, make the batch's facts, plan, encode and
append the entry (full ones and those that adopt snapshots among them), prepare packs, tell winners and statistics,
encode the next request. Left out are Spark and the storage's answer times: the store is memory, and forgets what a
collector would delete. CPU time of all threads counts, so that packs that are made in the background do, too.
"""

from __future__ import annotations

import gc
import hashlib
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.report import Cases, bar_chart, results_option, wide_console, write_cases
from varvite.changelog.chain.tiles import key_range
from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.working_stores.contract import StoreSize
from varvite.changelog.working_stores.options import BackendSettings
from varvite.spark_integration.driver.batch_commit import BatchCommitter
from varvite.spark_integration.driver.monitoring.statistics import BatchTimes, percentile, statistics_of
from varvite.spark_integration.driver.operator_executor import (
    LOST_BLOCK,
    check_broadcast,
    check_executed,
    check_summaries,
    winner_condition,
)
from varvite.spark_integration.driver.placement.decision import PartitionMoves
from varvite.spark_integration.messages.protocol import OperatorRequest, encode_message
from varvite.spark_integration.messages.summary import (
    Summary,
    WorkerNote,
    decode_summaries,
    encode_note,
    encode_summary,
)
from varvite.spark_integration.messages.worker_figures import AttemptFigures
from varvite.spark_integration.transport.pump import ExecutionNote, ExecutionNotes
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, Link, SnapshotDescriptor, SnapshotFloor, StateSchema
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.download import DownloadPolicy
from varvite.storage.transfer.upload import UploadPolicy

OPERATOR = "totals"
STATES = tuple(StateSchema(name=name, kind="value", value_type="long") for name in ("n", "total"))
PARALLELISMS = (8, 64, 512, 4096)
ADOPT_EVERY = 40
"""Batches from one materialization of all partitions to the next; by turns its snapshots come together or by parts."""
PARTS = 32
"""Of a materialization whose snapshots come by parts, so many commits adopt one part each."""
BEHIND = 4
"""Batches by which a snapshot is older than the commit that adopts it."""


def operator_request(parallelism: int) -> OperatorRequest:
    """An operator as the coordinator describes it."""
    return OperatorRequest(
        job="job", job_id="job", storage_url="memory://driver-cost", storage_options={}, operator=OPERATOR,
        parallelism=parallelism, max_parallelism=max(128, parallelism), backend="rocksdb",
        backend_options=BackendSettings(), changelog=True, key_columns=("k",), key_type="string", output_schema=b"",
        timestamp_column=None,
        function_hash="0" * 64, task_name=OPERATOR, job_parameters={}, upload=UploadPolicy(),
        downloads=DownloadPolicy(),
        preemptive_persist_threshold_bytes=5 << 20, inline_bytes_max=(4 << 20) // parallelism, idle_timeout_s=60,
        states=STATES,
    )  # fmt: skip


@dataclass
class Driver:
    """A run of a job whose tasks are simulated."""

    parallelism: int
    inline_bytes: int
    """Size of each partition's segment."""
    store: ObjectStore = field(default_factory=MemoryStore)
    batch: int = 0

    def __post_init__(self) -> None:
        self.request = operator_request(self.parallelism)
        self.key_groups = self.request.max_parallelism
        self.tokens = SystemTokens()
        self.run = JobRun.open(self.store, "job", self.key_groups, CommitPolicy(), SystemClock(), self.tokens)
        self.run.take_over()
        self.run.choose_base(SparkProgress(0, "query", "0" * 64, None), None)
        config = SimpleNamespace(ignore_unclaimed_state=False)
        plan: Any = SimpleNamespace(
            is_spark_watermark=False,
            operators=(OPERATOR,),
            config=config,
            input_delays=(),
            input_ends=False,
            watermark_delay_ms=None,
        )
        self.committer = BatchCommitter(self.run, plan, (self.request,))
        self.committer.start("query")
        self.moves = PartitionMoves()
        self.published: tuple[SnapshotDescriptor, ...] = ()
        self.links: list[Link] = []

    def answers(self) -> tuple[list[bytes], list[list[ExecutionNote]]]:
        """Messages of the tasks: encoded summaries, and notes of their execution."""
        slot, data = self.run.state.slot, bytes(self.inline_bytes)
        answers: list[bytes] = []
        notes: list[list[ExecutionNote]] = []
        figures = AttemptFigures(
            rows_in=100, rows_out=100, row_bytes_max=50, state_size=StoreSize(1_000, 100_000),
            timings_ms={"restore": 0.1, "process": 3.0, "answer": 0.2, "timers": 0.1, "checkpoint": 1.0},
        ).packed()  # fmt: skip
        note = encode_note(WorkerNote(states=STATES, restored="confirmed", executor="executor-1"))
        for partition in range(self.parallelism):
            low, high = key_range(partition, self.parallelism, self.key_groups)
            tag = hashlib.md5(f"{slot}/{partition}".encode(), usedforsecurity=False).hexdigest()
            summary = Summary(
                operator=OPERATOR, partition=partition, low=low, high=high, tag=tag, slot=slot, mutations=20,
                inline=data, figures=figures, note=note,
            )  # fmt: skip
            answers.append(encode_summary(summary))
            notes.append([(OPERATOR, partition, tag)])
        return answers, notes

    def execute(self, answers: list[bytes], notes: list[list[ExecutionNote]]) -> tuple[str, int]:
        """All that the driver does for one batch; (kind of its entry, size of the entry in bytes)."""
        spec = self.committer.spec(self.batch, attempt=0, time_ms=self.batch, commit_token=self.tokens.token())
        (request,) = self.committer.requests(spec)
        encode_message(request)
        executed: list[ExecutionNote] = []
        accumulation = ExecutionNotes()
        for note in notes:
            executed = accumulation.addInPlace(executed, note)
        summaries = check_summaries(decode_summaries(answers), request)
        check_broadcast(summaries, self.batch)
        check_executed(executed, (summaries,), self.batch)
        batch = self.committer.executed(spec, "0" * 64, (summaries,), {})
        acknowledged = self.committer.commit(batch, self._adoption)
        commit = acknowledged.commit
        winner_condition(summaries, LOST_BLOCK)
        self.run.batch_done()
        times = BatchTimes(ack_ms=0, operators_ms=0, sink_ms=0, batch_ms=0)
        moved = self.moves.after((summaries,))
        log_commits = self.run.state.log_commits
        statistics_of(acknowledged, (summaries,), times, attempts=1, log_commits=log_commits, moved_partitions=moved)
        self.links.append(commit.link)
        self.batch += 1
        return _kind(commit), acknowledged.entry_bytes

    def settle(self) -> None:
        """Wait for a pack that is being made; Spark takes longer for a batch."""
        self.run._packs.settle()  # noqa: SLF001

    def between(self) -> None:
        """Events meanwhile: a pack becomes ready, a materializer publishes, a collector deletes."""
        self.settle()
        cycle, number = divmod(self.batch + 1, ADOPT_EVERY)
        if cycle % 2 and not number:  # together; the first time because all partitions begin as one tile
            self.published = tuple(self._descriptors(range(self.parallelism)))
        elif not cycle % 2:
            parts = range(number, self.parallelism, PARTS) if cycle and number < PARTS else ()
            self.published = tuple(self._descriptors(parts))
        state = self.run.state
        newest = layout.chain(state.last_seq)
        self.store.delete([m.name for m in self.store.list(layout.CHAIN) if m.name < newest])
        named = {ref.data.name for ref in state.view.segments}
        packs = [m.name for m in self.store.list(layout.PACKS) if layout.slot_of(m.name).slot <= state.last_seq]
        self.store.delete([name for name in packs if name not in named])

    def _descriptors(self, partitions: Iterable[int]) -> Iterator[SnapshotDescriptor]:
        for partition in partitions:
            at = self.links[-BEHIND]
            low, high = key_range(partition, self.parallelism, self.key_groups)
            base = self.run.state.view.tiles_for(OPERATOR, low, high)[0].at
            yield SnapshotDescriptor(
                status="published", job_id=self.run.record.job_id, token="t", uid="u", operator=OPERATOR, low=low,
                high=high, number=self.batch, at=at, base=base, states=STATES, created_ms=0,
            )  # fmt: skip

    def _adoption(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        if not self.published:
            return NOTHING_ADOPTED
        return decide_adoption(view, floors, self.published, {}, self.run.record.job_id)


def _kind(commit: Commit) -> str:
    if commit.is_full:
        return "full"
    if not any(tile.snapshot for tile in commit.tiles):
        return "ordinary"
    return "adopting all" if len(commit.tiles) == len(commit.parts) else "adopting"


def measure_time(parallelism: int, inline_bytes: int, batches: int, warm_up: int) -> Cases:
    """CPU and wall time of batches, by the kind of their entry."""
    driver = Driver(parallelism, inline_bytes)
    spent: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[str, int] = {}
    for number in range(warm_up + batches):
        answers = driver.answers()
        wall, cpu = time.perf_counter(), time.process_time()
        kind, entry_bytes = driver.execute(*answers)
        wall_s = time.perf_counter() - wall
        driver.settle()
        took = wall_s * 1000, (time.process_time() - cpu) * 1000
        driver.between()
        if number >= warm_up:
            for name in (kind, "all"):
                spent.setdefault(name, []).append(took)
                sizes[name] = max(entry_bytes, sizes.get(name, 0))
    driver.run.close()
    return [
        {
            "parallelism": parallelism,
            "entries": kind,
            "batches": len(found),
            "wall_ms_p50": round(percentile([w for w, _ in found], 0.5), 2),
            "wall_ms_p99": round(percentile([w for w, _ in found], 0.99), 2),
            "cpu_ms_p50": round(percentile([c for _, c in found], 0.5), 2),
            "cpu_ms_mean": round(sum(c for _, c in found) / len(found), 2),
            "entry_bytes_max": sizes[kind],
        }
        for kind, found in sorted(spent.items())
    ]


def measure_memory(parallelism: int, inline_bytes: int, batches: int) -> float:
    """Largest amount of memory that Python's objects took in any batch, MB: run, answers and all."""
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as directory:  # a store in memory would count
        gc.collect()
        tracemalloc.start()
        driver = Driver(parallelism, inline_bytes, LocalStore(Path(directory)))
        for _ in range(batches):
            driver.execute(*driver.answers())
            driver.between()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        driver.run.close()
    return round(peak / 1e6, 2)


COLUMNS = ("entries", "batches", "wall_ms_p50", "wall_ms_p99", "cpu_ms_p50", "cpu_ms_mean", "entry_bytes_max")


@click.command()
@click.option("--parallelism", multiple=True, type=int, default=PARALLELISMS, help="Partitions; may be repeated.")
@click.option("--inline-bytes", default=256, show_default=True, help="Size of each partition's segment.")
@click.option("--batches", default=150, show_default=True, help="Batches that count, of each parallelism.")
@click.option("--warm-up", default=20, show_default=True, help="Batches before them.")
@results_option("driver_cost")
def main(*, parallelism: tuple[int, ...], inline_bytes: int, batches: int, warm_up: int, results: Path) -> None:
    """Measure what a batch costs the driver."""
    console = wide_console()
    cases: Cases = []
    table = Table("parallelism", *COLUMNS, "peak_mb", title="The driver's own cost of a batch")
    for count in parallelism:
        found = measure_time(count, inline_bytes, batches, warm_up)
        peak_mb = measure_memory(count, inline_bytes, min(batches, 2 * ADOPT_EVERY))
        for case in found:
            case["peak_mb"] = peak_mb
            table.add_row(str(count), *(_cell(case[column]) for column in COLUMNS), str(peak_mb))
        cases += found
        write_cases(results, cases)
    console.print(table)
    groups = {f"{c['parallelism']} partitions": [("ms", c["wall_ms_p50"])] for c in cases if c["entries"] == "all"}
    bar_chart(results.with_suffix(".png"), "The driver's own cost of a batch", "ms, median", groups)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
