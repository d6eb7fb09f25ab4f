"""A job below Spark: real state workers in this process over the real chain, for a function with non-keyed state."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from tests.jobs.chain_job import CountingTokens, ranges
from tests.stores.manual_clock import ManualClock
from tests.workers.state_worker_setup import split, task_request
from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, entry_time
from varvite.changelog.commit.run import JobRun, nothing_to_adopt
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.collector import Collector
from varvite.changelog.types.factory import Types
from varvite.spark_integration.driver.operator_requests import operator_layout, with_states
from varvite.spark_integration.functions.checkpointed import CheckpointedFunction
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN
from varvite.spark_integration.transport.home import WorkerHome
from varvite.spark_integration.worker.state_worker import StateWorker
from varvite.storage.format.records import ORIGIN
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from varvite.spark_integration.functions.checkpointed import FunctionInitializationContext, FunctionSnapshotContext
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.messages.summary import Summary
    from varvite.spark_integration.worker.attempt import Attempt
    from varvite.storage.format.records import Commit, Link

KEY_GROUPS: Final = 8
POLICY: Final = CommitPolicy(full_every=3, path_max=6)
LIST: Final = ListStateDescriptor("items", Types.LONG())
UNION: Final = ListStateDescriptor("offsets", Types.LIST(Types.LONG()))
RULES: Final = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
KEPT: Final = 6
"""Elements of a list that an operation keeps."""


@dataclass(frozen=True)
class Operation:
    """Command of an element to the function: add, clear, union, raw, raw-keyed, rule or fail."""

    what: str
    number: int = 0
    key_group: int = 0
    """For raw keyed state."""


@dataclass
class Held:
    """The non-keyed state of one instance, and the model of it."""

    items: list[int] = field(default_factory=list[int])
    offsets: list[list[int]] = field(default_factory=list[list[int]])
    rules: dict[str, int] = field(default_factory=dict[str, int])
    streams: list[bytes] = field(default_factory=list[bytes])
    counts: dict[int, int] = field(default_factory=dict[int, int])
    """By key group."""

    def apply(self, operation: Operation) -> None:
        """Commands for the function."""
        number = operation.number
        if operation.what == "add":
            self.items.append(number)
        elif operation.what == "clear":
            self.items.clear()
        elif operation.what == "union":
            self.offsets = [[number, number], *self.offsets][:KEPT]
        elif operation.what == "raw":
            self.streams = [b"%d" % number, *self.streams][:KEPT]
        elif operation.what == "raw-keyed":
            self.counts[operation.key_group] = self.counts.get(operation.key_group, 0) + number
        elif number < 0:
            self.rules.pop(f"{-number % 3}", None)
        else:
            self.rules[f"{number % 3}"] = number


def rescaled(before: Sequence[Held], parallelism: int) -> list[Held]:
    """State of the instances when the job starts again."""
    stays = len(before) == parallelism
    items = [item for held in before for item in held.items]
    streams = [stream for held in before for stream in held.streams]
    counts = {key_group: count for held in before for key_group, count in held.counts.items()}
    made: list[Held] = []
    for p, (low, high) in enumerate(ranges(parallelism)):
        old = before[p % len(before)]
        share = slice(len(items) * p // parallelism, len(items) * (p + 1) // parallelism)
        shared = slice(len(streams) * p // parallelism, len(streams) * (p + 1) // parallelism)
        made.append(
            Held(
                items=list(old.items) if stays else items[share],
                offsets=[list(offset) for held in before for offset in held.offsets],
                rules=dict(old.rules),
                streams=list(old.streams) if stays else streams[shared],
                counts={key_group: count for key_group, count in counts.items() if low <= key_group < high},
            )
        )
    return made


class Recorder(KeyedProcessFunction[Any, Any, Any], CheckpointedFunction):
    """Does to its non-keyed state what elements say; what is in the raw streams is in fields meanwhile."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.items = store.get_list_state(LIST)
        self.offsets = store.get_union_list_state(UNION)
        self.rules = store.get_broadcast_state(RULES)
        self.restored_from = context.get_restored_checkpoint_id()
        self.streams = [one.get_stream().read() for one in context.get_raw_operator_state_inputs()]
        keyed = context.get_raw_keyed_state_inputs()
        self.counts = {one.get_key_group_id(): int(one.get_stream().read()) for one in keyed}

    def open(self, runtime_context: RuntimeContext) -> None:
        INSTANCES[runtime_context.get_index_of_this_subtask()] = self

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        del ctx
        if value.what == "add":
            self.items.add(value.number)
        elif value.what == "clear":
            self.items.clear()
        elif value.what == "union":
            self.offsets.update([[value.number, value.number], *self.offsets][:KEPT])
        elif value.what == "raw":
            self.streams = [b"%d" % value.number, *self.streams][:KEPT]
        elif value.what == "raw-keyed":
            self.counts[value.key_group] = self.counts.get(value.key_group, 0) + value.number
        elif value.what == "fail":
            raise ArithmeticError("asked to")
        elif value.number < 0:
            del self.rules[f"{-value.number % 3}"]
        else:
            self.rules[f"{value.number % 3}"] = value.number

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        raw = context.get_raw_operator_state_output()
        for stream in self.streams:
            raw.start_new_partition()
            raw.write(stream)
        keyed = context.get_raw_keyed_operator_state_output()
        for key_group in keyed.get_key_group_list():
            if key_group in self.counts:
                keyed.start_new_key_group(key_group)
                keyed.write(b"%d" % self.counts[key_group])

    def held(self) -> Held:
        """State of the instance."""
        return Held(self.items.get(), self.offsets.get(), dict(self.rules.items()), self.streams, self.counts)


INSTANCES: Final[dict[int, Recorder]] = {}
"""The newest instance of each partition; the function is pickled by reference, so the workers use this very module."""
FUNCTION: Final = cloudpickle.dumps(Recorder())


def element_rows(operations: Sequence[Operation], partition: int, parallelism: int) -> pa.RecordBatch:
    """Input rows of a partition; all of one key."""
    low = ranges(parallelism)[partition][0]
    columns = {
        "what": pa.array([operation.what for operation in operations], pa.string()),
        "number": pa.array([operation.number for operation in operations], pa.int64()),
        "key_group": pa.array([operation.key_group for operation in operations], pa.int32()),
        KEY_GROUP_COLUMN: pa.array([low] * len(operations), pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


class WorkerJob:
    """One query; `start` it, then execute batches. `models` holds what instances have after every commit.

    Args:
        directory: For the storage and the workers.
        changelog: On or off.
        inline_bytes_max: Larger images are uploaded.
        function: Pickled, instead of a `Recorder`.
        vectorized: It takes Arrow batches.
        home: Where the workers keep their files, instead of below `directory`.
        backend: The working store.
    """

    def __init__(
        self,
        directory: Path,
        *,
        changelog: bool = True,
        inline_bytes_max: int = 1 << 20,
        function: bytes | None = None,
        vectorized: bool = False,
        home: Path | None = None,
        backend: str = "hashmap",
    ) -> None:
        self.function = function or FUNCTION
        self._operator: dict[str, Any] = {
            "backend": backend, "changelog": changelog, "key_type": "1:int",
            "key_columns": (KEY_GROUP_COLUMN,), "preemptive_persist_threshold_bytes": 1 << 20,
            "inline_bytes_max": inline_bytes_max, "max_parallelism": KEY_GROUPS, "vectorized": vectorized,
        }  # fmt: skip
        self.store: PrefixedStore
        """The driver's."""
        self.store_at(directory / "state")
        self.clock = ManualClock()
        self._home = WorkerHome(home or directory / "home")
        self._home.create()
        self._tokens = CountingTokens()
        self._workers: dict[int, StateWorker] = {}
        self._winners: tuple[str, ...] = ()
        self.adoption = nothing_to_adopt
        """Snapshots that a commit takes over."""
        self.models: dict[Link, list[Held]] = {}
        self.model: list[Held] = []
        self.run: JobRun | None = None
        self.parallelism = 0
        self.batch = 0
        """The next batch."""

    @property
    def job(self) -> JobRun:
        """The driver's run."""
        assert self.run is not None
        return self.run

    def store_at(self, storage: Path, **options: Any) -> None:
        """Sets the storage of the next start; `options` are other fields of an operator's request."""
        self.store = PrefixedStore(open_store(str(storage)), "job")
        self._operator |= {"storage_url": str(storage), **options}

    def start(self, parallelism: int, *, redo: bool = False, keep_workers: bool = False) -> None:
        """A new driver run; with `redo`, Spark asks for the newest batch again."""
        if not keep_workers or parallelism != self.parallelism:
            for partition in list(self._workers):
                self.lose_worker(partition)
        if self.run is not None:
            self.run.close()
        self.parallelism = parallelism
        self.run = JobRun.open(self.store, "job", KEY_GROUPS, POLICY, self.clock, self._tokens)
        self.run.take_over()
        self.batch -= redo
        before = _hash(self.batch - 1) if self.batch else None
        self.run.choose_base(SparkProgress(self.batch, "query", _hash(self.batch), before), None)
        base = self.run.state.base
        self._first_base = base.link if base else ORIGIN
        self._winners = tuple(p.tag for p in sorted(base.parts, key=lambda p: p.partition)) if base else ()
        self.model = rescaled(copy.deepcopy(self.models[base.link]), parallelism) if base else _fresh(parallelism)

    def task(self, partition: int) -> TaskRequest:
        """The request of a partition for the next batch."""
        state = self.job.state
        task = task_request(
            partition=partition, slot=state.slot, epoch=self.job.fence.epoch, parallelism=self.parallelism,
            job_id=self.job.record.job_id, **self._operator,
        )  # fmt: skip
        batch = msgspec.structs.replace(
            task.batch,
            commit_token=f"{state.slot}",
            operator=with_states(task.batch.operator, state.base),
            base=state.view.base,
            confirmed=self._winners,
            has_images=bool(state.view.images),
            is_first=state.view.base == self._first_base,
        )
        return msgspec.structs.replace(task, batch=batch)

    def begin(self, partition: int) -> Attempt:
        """An attempt of a partition at the next batch."""
        if partition not in self._workers:
            self._workers[partition] = StateWorker(partition, self._home)
        worker, task = self._workers[partition], self.task(partition)
        has_function = worker.has_function(task.batch.operator.operator, task.batch.operator.function_hash)

        def function() -> bytes:
            assert not has_function, "the process layer does not fetch what the worker said it has"
            return self.function

        return worker.begin(task, function)

    def attempt(self, partition: int, operations: Sequence[Operation]) -> Summary:
        """Execute a partition without committing; a later attempt drops what this one has done."""
        return self._executed(partition, operations)[1]

    def yielded(self, partition: int, operations: Sequence[Operation]) -> list[int]:
        """The same; what the function yields."""
        return self._executed(partition, operations)[0]

    def _executed(self, partition: int, operations: Sequence[Operation]) -> tuple[list[int], Summary]:
        attempt = self.begin(partition)
        answers = list(attempt.process(element_rows(operations, partition, self.parallelism)))
        return split([*answers, *attempt.finish()])

    def commit(self, operations: Mapping[int, Sequence[Operation]]) -> Commit:
        """Execute all partitions and commit the batch."""
        summaries = [self.attempt(partition, operations.get(partition, ())) for partition in range(self.parallelism)]
        assert [summary.error for summary in summaries] == [None] * self.parallelism
        state, operator = self.job.state, self.task(0).batch.operator
        facts = BatchFacts(
            batch=self.batch,
            query_id="query",
            source_hash=_hash(self.batch),
            time_ms=entry_time(state.base, self.clock.now_ms()),
            watermark_ms=None,
            operators=(operator_layout(operator, OperatorSummaries.of(operator.operator, summaries)),),
            results=tuple(summaries),
        )
        commit = self.job.commit(facts, f"{state.slot}", self.adoption).commit
        self.job.batch_done()
        self.batch += 1
        self._winners = tuple(summary.tag for summary in summaries)
        for partition, held in enumerate(self.model):
            for operation in operations.get(partition, ()):
                held.apply(operation)
        self.models[commit.link] = copy.deepcopy(self.model)
        return commit

    def held(self) -> list[Held]:
        """State of the instances."""
        return [INSTANCES[partition].held() for partition in range(self.parallelism)]

    def collect(self) -> int:
        """Delete what is not needed; how many objects."""
        return Collector(self.job.reader, self.clock, self._tokens).collect().deleted

    def lose_worker(self, partition: int) -> None:
        """End the worker of a partition; local files stay."""
        worker = self._workers.pop(partition, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """Release everything."""
        for partition in list(self._workers):
            self.lose_worker(partition)
        if self.run is not None:
            self.run.close()
            self.run = None
        INSTANCES.clear()


def _fresh(parallelism: int) -> list[Held]:
    return [Held() for _ in range(parallelism)]


def _hash(batch: int) -> str:
    return hashlib.sha256(f"offsets {batch}".encode()).hexdigest()
