"""A job without Spark: batches of `tests.jobs.state_model` on the real chain, and a model of every commit."""

from __future__ import annotations

import copy
import hashlib
import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tests.jobs.state_model import (
    ALARMS,
    BY_NAME,
    EVENTS,
    GONE,
    KEY_GROUPS,
    KEY_TYPE,
    KEYS,
    OPERATOR,
    TOTAL,
    BatchChanges,
    Model,
    cells,
    key_group,
)
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult, entry_time
from varvite.changelog.commit.import_plan import begins_after
from varvite.changelog.commit.pack import is_packable
from varvite.changelog.commit.run import JobRun, NewJob, nothing_to_adopt
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.segments.segment import SegmentHeader, encode_segment
from varvite.materializer.restore.origin import clone_origin, copy_origin
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, ObjectSlice, OperatorLayout

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.commit.import_plan import CopiedState
    from varvite.changelog.commit.plan import Adoption
    from varvite.materializer.restore.origin import StateOrigin
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import JobStorage, Link, SnapshotFloor
    from varvite.storage.object_stores.contract import ObjectStore

POLICY = CommitPolicy(full_every=5)


class NumberedTokens:
    """Tokens that are the same in every run of a test."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._numbers = itertools.count(1)

    def token(self) -> str:
        return hashlib.md5(f"{self._name}-{next(self._numbers)}".encode()).hexdigest()


@dataclass
class CommittingJob:
    """One query; `start` it, then `commit` batches. `models` holds the state after every commit, by its link."""

    store: ObjectStore
    """Rooted at `<root>/<job>`."""
    clock: Clock
    name: str = "job"
    parallelism: int = 2
    policy: CommitPolicy = POLICY
    uid: str = OPERATOR
    query: str = "query"
    changelog: bool = True
    storage: JobStorage | None = None
    """Storage of a new job's objects."""
    idle: tuple[str, ...] = ()
    """Uids of more operators, which change nothing."""
    dropped: frozenset[str] = frozenset()
    """Uids of operators whose state may be dropped."""
    model: Model = field(default_factory=Model)
    models: dict[Link, Model] = field(default_factory=dict)
    adopted: list[Adoption] = field(default_factory=list)
    run: JobRun | None = None
    tokens: NumberedTokens = field(default_factory=lambda: NumberedTokens("driver"))
    runs: int = 0
    batch: int = 0
    """The next batch."""

    def start(self, *, redo: bool = False) -> None:
        """A new driver run; with `redo`, Spark has not acknowledged the newest batch and asks for it again."""
        self.close()
        self.runs += 1
        self.tokens = NumberedTokens(f"driver-{self.name}-{self.runs}")
        self.run = JobRun.open(
            self.store, self.name, KEY_GROUPS, self.policy, self.clock, self.tokens, new=NewJob(storage=self.storage)
        )
        self.run.take_over()
        self.batch -= redo
        self.choose_base()

    def start_from(self, origin: StateOrigin, model: Model, *, clone: bool = False) -> None:
        """A new query's first run, from another state; `model` is what that state must be."""
        self.close()
        self.runs += 1
        self.tokens = NumberedTokens(f"driver-{self.name}-{self.runs}")
        run = self.run = JobRun.open(
            self.store,
            self.name,
            KEY_GROUPS,
            self.policy,
            self.clock,
            self.tokens,
            new=NewJob(begins_after(origin.commit), origin.job_beside(self.store) if clone else None, self.storage),
        )
        given: Any = {"clock": self.clock, "tokens": self.tokens}

        def take(slot: int) -> CopiedState:
            if run.record.cloned_from is not None:
                return clone_origin(origin, run.record, run.record.cloned_from, **given)
            return copy_origin(origin, run.record, self.store, slot, **given)

        fence = run.start_from(
            origin.commit,
            None,
            take,
        )
        assert fence.restore is not None
        imported = run.reader.find_commit(fence.restore)
        assert imported is not None
        self.models[imported.link] = copy.deepcopy(model)
        self.batch = 0
        self.choose_base()

    def choose_base(self) -> None:
        """Spark asks for the next batch, the first of the run."""
        assert self.run is not None
        progress = SparkProgress(
            self.batch, self.query, _hash(self.batch), _hash(self.batch - 1) if self.batch else None
        )
        self.run.choose_base(progress, None)
        base = self.run.state.base
        self.model = copy.deepcopy(self.models[base.link]) if base else Model()

    def commit(
        self,
        changes: BatchChanges,
        *,
        adopt: bool = True,
        upload: bool = False,
        parts: int = 1,
        images: Sequence[bytes] | None = None,
    ) -> Commit:
        """Execute and commit a batch; it takes the pack that is made for it, however slow that is.

        Args:
            changes: Mutations of the batch.
            adopt: Whether published snapshots are taken over.
            upload: Put the segments into objects of their own.
            parts: In so many parts, all but the last of which are uploaded in any case.
            images: Of the non-keyed state, by partition; b"" for what did not change.
        """
        assert self.run is not None
        self.run._packs.settle()
        slot = self.run.state.slot
        split = changes.split(parts) if parts > 1 else [changes]
        results = tuple(self._result(slot, p, split, upload=upload) for p in range(self.parallelism))
        if images is not None:
            paired = zip(results, images, strict=True)
            results = tuple(msgspec.structs.replace(result, image=image) for result, image in paired)
        quiet = [self._result(slot, p, [], upload=upload) for p in range(self.parallelism)]
        results += tuple(msgspec.structs.replace(one, operator=uid) for uid in self.idle for one in quiet)
        facts = BatchFacts(
            batch=self.batch,
            query_id=self.query,
            source_hash=_hash(self.batch),
            time_ms=entry_time(self.run.state.base, self.clock.now_ms()),
            watermark_ms=None,
            operators=tuple(msgspec.structs.replace(self._layout(), uid=uid) for uid in (self.uid, *self.idle)),
            results=results,
            dropped=self.dropped,
        )
        source = self._adoption if adopt else nothing_to_adopt
        commit = self.run.commit(facts, self.tokens.token(), source).commit
        self._check_counts()
        self.run.batch_done()
        self.model.apply(changes)
        self.models[commit.link] = copy.deepcopy(self.model)
        self.batch += 1
        return commit

    def _check_counts(self) -> None:
        """The counts beside the state equal the log's."""
        assert self.run is not None
        state = self.run.state
        log = state.view.segments
        assert state.packable_bytes == sum(ref.data.length for ref in log if is_packable(ref))
        assert state.log_commits == len({ref.seq_last for ref in log})

    def close(self) -> None:
        """End the run, if there is one."""
        if self.run is not None:
            self.run.close()
            self.run = None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Key groups of the partitions."""
        edges = [-(-p * KEY_GROUPS // self.parallelism) for p in range(self.parallelism + 1)]
        return list(itertools.pairwise(edges))

    def _layout(self) -> OperatorLayout:
        return OperatorLayout(
            uid=self.uid,
            parallelism=self.parallelism,
            key_type=KEY_TYPE,
            changelog=self.changelog,
            backend="rocksdb",
            states=(TOTAL, BY_NAME, EVENTS, ALARMS),
        )

    def _result(self, slot: int, partition: int, parts: list[BatchChanges], *, upload: bool) -> PartitionResult:
        low, high = self.ranges[partition]
        rows = [part.rows(lambda key: low <= key_group(key) < high) for part in parts]
        tag = hashlib.md5(f"{self.runs}-{slot}-{partition}".encode()).hexdigest()
        assert self.run is not None
        header = SegmentHeader(
            job_id=self.run.record.job_id, operator=self.uid, partition=partition, low=low, high=high, seq=slot,
            tag=tag, key_type=KEY_TYPE,
        )  # fmt: skip
        inline, uploaded = b"", list[ObjectSlice]()
        for i, part in enumerate(rows):
            data = encode_segment(msgspec.structs.replace(header, part=len(uploaded)), part) if part else b""
            if i + 1 == len(rows) and not upload:
                inline = data
            elif data:
                name = layout.segment(slot, self.uid, partition, tag, len(uploaded))
                self.store.put(name, data)
                uploaded.append(ObjectSlice(name, 0, len(data), zlib.crc32(data)))
        return PartitionResult(
            operator=self.uid,
            partition=partition,
            low=low,
            high=high,
            tag=tag,
            mutations=sum(len(change) for part in rows for change in part),
            inline=inline,
            uploaded=tuple(uploaded),
        )

    def _adoption(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        assert self.run is not None
        reader = SnapshotReader(self.store, self.run.record.job_id)
        adoption = decide_adoption(
            view, floors, reader.candidates(floors), reader.tile_files(view), self.run.record.job_id
        )
        if adoption.tiles:
            self.adopted.append(adoption)
        return adoption


def _hash(batch: int) -> str:
    return hashlib.sha256(f"offsets {batch}".encode()).hexdigest()


def random_batch(rng: random.Random, keys: int = 4) -> BatchChanges:
    """A few changes of every kind."""

    def pick() -> list[str]:
        return rng.sample(KEYS, rng.randint(0, keys))

    return BatchChanges(
        totals={k: GONE if rng.random() < 0.2 else rng.randint(-9, 9) for k in pick()},
        by_name={
            k: (
                rng.random() < 0.2,
                {m: rng.choice([None, GONE, 1, 2]) for m in rng.sample(["JFK", "LGA", "EWR"], rng.randint(0, 3))},
            )
            for k in pick()
        },
        events={k: (rng.random() < 0.2, [rng.choice("abc") for _ in range(rng.randint(0, 3))]) for k in pick()},
        alarms={(k, rng.randint(-3, 3), rng.choice([None, "w"])): rng.random() < 0.7 for k in pick()},
    )


def restored_cells(
    store: ObjectStore, job_id: str, link: Link, directory: Path, uid: str = OPERATOR
) -> dict[str, dict[str, Any]]:
    """Result of a restore of this commit, all key groups; `directory` must not exist."""
    view = ChainReader(store, job_id).load_line(link, KEY_GROUPS).view
    directory.mkdir(parents=True)
    target = RestoreTarget(operator=uid, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)
    state = restore(view, target, store, directory / "state")
    try:
        return cells(state)
    finally:
        state.close()
