"""Checks after every step: the invariants I1 to I11, as far as they can be seen from outside.

The oracle sees every effect on the storage when it takes place. At each entry of the chain it computes what the state
after it must be, from what the winners' attempts have done, and checks the entry; at each deletion it checks that
nobody needs the object. The function of the job compares what it reads (`function`), and now and then a commit is
restored as a whole and compared (`check_restore`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.simulation.system.function import (
    EMPTY,
    KEY_GROUPS,
    AttemptModel,
    KeyState,
    Rules,
    Seen,
    State,
    difference,
    key_group,
    model_range,
)
from tests.simulation.system.scheduler import Scheduler, remove
from tests.simulation.system.storage import StoredNames
from tests.simulation.system.store import Disk
from varvite.changelog.chain.invariants import (
    violations_of_commit,
    violations_of_needed,
    violations_of_succession,
    violations_of_view,
)
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.chain.view import LineView, StoredCommit, advance
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.retention.savepoints import objects_of
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.working_stores.table_rows import table_of
from varvite.storage.errors import VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import (
    ORIGIN,
    Commit,
    Entry,
    Fence,
    Link,
    Savepoint,
    SnapshotDescriptor,
    decode_entry,
    decode_record,
)
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from tests.simulation.system.spark.cached_location import CachedLocation
    from tests.simulation.system.spark.location import CheckpointLocation
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.worker.state_worker import OperatorState


class Oracle:
    """Of one job.

    Args:
        scheduler: For violations.
        disk: What is stored.
        location: Spark's checkpoint location of the job.
        directory: For restores.
        job: The job's name.
        counts: What happened, of all jobs.
        source: Of the job that this one is a clone of.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        disk: Disk,
        location: CheckpointLocation | CachedLocation,
        directory: Path,
        job: str,
        counts: dict[str, int],
        source: Oracle | None,
    ) -> None:
        self._scheduler = scheduler
        self._location = location
        self._disk = disk
        self._directory = directory
        self._job = job
        self._counts = counts
        self._source = source
        self.store = JobStore(disk, job)
        self.names = StoredNames(job, self.store, self.fail)
        self.entries: dict[int, Entry] = {}
        """Everything that ever was in the chain."""
        self.head: Entry | None = None
        self.models: dict[Link, dict[str, State]] = {ORIGIN: {}}
        """By operator: the state after a commit."""
        self.seen: dict[Link, dict[str, list[Seen]]] = {ORIGIN: {}}
        """By operator and partition: the list of the instance after a commit."""
        self.shared: dict[Link, dict[str, list[Seen]]] = {ORIGIN: {}}
        """The same of their union lists."""
        self.rules: dict[Link, dict[str, Rules]] = {ORIGIN: {}}
        """By operator: the broadcast state of all instances after a commit."""
        self.views: dict[Link, LineView] = {ORIGIN: LineView(max_parallelism=KEY_GROUPS)}
        self._attempts: dict[str, AttemptModel] = {}
        self._needed: dict[str, frozenset[str]] = {}
        """Names that nobody may delete, by who needs them."""
        self._late_sinks: dict[int, int] = {}
        self.outputs: dict[int, tuple[int, list[tuple[str, int]]]] = {}
        """Batch → seq and rows of its newest output."""
        self.written: set[Link] = set()
        """Commits whose rows a sink has got."""
        self.last_output: SinkCommit | None = None
        self.stopped = False
        """The operator is setting the job back: what is acknowledged is not what is on the line."""
        self.chosen: Link | None = None
        """The commit that the operator has chosen for the next batch."""
        self.unchecked = 0
        """Commits since one was restored as a whole."""
        self._checks = itertools.count()

    def count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1

    # --- the chain ---------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Link:
        """The newest commit on the head's line."""
        if self.head is None:
            return ORIGIN
        return self.head.link if isinstance(self.head, Commit) else self.head.commit

    def commit(self, link: Link) -> Commit:
        """A commit that once was there."""
        found = self.entries[link.seq]
        assert isinstance(found, Commit)
        return found

    def owner(self) -> int:
        """Epoch of the newest run."""
        return self.head.epoch if self.head else 0

    def line(self) -> list[Link]:
        """The commits of the head's line that must be complete, the newest first."""
        found: list[Link] = []
        link = self.newest
        while link != ORIGIN and self.head is not None and bounds_of(self.head).is_complete(self.commit(link)):
            found.append(link)
            link = self.commit(link).parent
        return found

    def savepoints(self) -> list[str]:
        """Names of the savepoints there are, holds not among them."""
        names = [unquote(who.removeprefix("savepoint ")) for who in self._needed if who.startswith("savepoint ")]
        return sorted(name for name in names if not layout.is_hold(name))

    def put(self, name: str, data: bytes) -> None:
        """An object was written, of whatever job."""
        own = self.names.own(name)
        if own is None:
            return
        self.names.put(name, own, data)
        area, _, rest = own.partition("/")
        if area == "chain":
            self._appended(int(rest), self.store.get(own))
        elif area == "savepoints":
            savepoint = decode_record(self.store.get(own), Savepoint, name)
            self._needed[f"savepoint {rest}"] = frozenset(map(self._stored, savepoint.objects))
            self._check_exist(f"savepoint {rest}")
            self.count("savepoints")
        elif area == "snap":
            descriptor = decode_record(self.store.get(own), SnapshotDescriptor, name)
            self.count(descriptor.status)

    def deleted(self, name: str) -> None:
        """An object was deleted, of whatever job."""
        own = self.names.own(name)
        area, _, rest = (own or "").partition("/")
        if area == "savepoints":
            self._needed.pop(f"savepoint {rest}", None)
        for who, names in self._needed.items():
            if name in names:
                self.fail(f"{name} was deleted, which {who} of {self._job} needs (I7)")
        if own is None:
            return
        if area == "chain" and isinstance(self.entries[int(rest)], Fence):
            self.fail(f"fence {rest} was deleted (I7)")
        self.count(f"deleted {area}")

    def _appended(self, seq: int, data: bytes) -> None:
        entry, blob = decode_entry(data, layout.chain(seq))
        if seq in self.entries:
            self._filled(seq, entry)
            return
        self.entries[seq] = entry
        head = self.head
        if head is not None:
            self._fail_if(violations_of_succession(entry, head))
        elif seq != read_job(self.store).begins_after + 1:
            self.fail(f"entry {seq} is not the chain's first (I6)")
        self.count(type(entry).__name__.lower())
        if isinstance(entry, Commit):
            self._committed(entry, StoredCommit(entry, len(data) - len(blob)))
        self.head = entry
        self._note_line()
        self.check_acknowledged()

    def _filled(self, seq: int, entry: Entry) -> None:
        """An entry appears where a collected commit was: a stale run's fence, or a late copy of that very commit."""
        old = self.entries[seq]
        collected = isinstance(old, Commit) and self.head is not None and seq < self.head.keep_from
        if not collected or (isinstance(entry, Commit) and entry != old):
            self.fail(f"entry {seq} was written again (I6)")
        self.count(f"{type(entry).__name__.lower()} in a hole")

    def took_over(self, fence: Fence) -> None:
        """A run believes that it owns the chain: its fence must have been the head."""
        if self.entries.get(fence.seq) != fence:
            self.fail(f"a run owns the chain by fence {fence.seq}, which stands in the hole of a collected commit (I6)")

    def _fail_if(self, violations: list[str]) -> None:
        for violation in violations:
            self.fail(violation)

    def _committed(self, commit: Commit, stored: StoredCommit) -> None:
        self.unchecked += 1
        entry = self.entries.get(commit.parent.seq)
        parent = entry if isinstance(entry, Commit) else None
        if commit.source is not None:
            self._imported(commit, commit.source.commit)
        else:
            self._executed(commit, parent)
        self._fail_if(violations_of_commit(commit, parent))
        # An import has no parent, and its view is that of a full entry.
        self.views[commit.link] = advance(self.views[commit.parent], stored)
        self._fail_if(violations_of_view(self.views[commit.link], commit))

    def _imported(self, commit: Commit, source: Link) -> None:
        """A copy of the state of a commit that once was there (I5)."""
        assert commit.source is not None
        other = self if self._source is None or commit.source.job_id == commit.job_id else self._source
        self.models[commit.link] = other.models[source]
        self.seen[commit.link], self.shared[commit.link] = other.seen[source], other.shared[source]
        self.rules[commit.link] = other.rules[source]
        if commit.batch != other.commit(source).batch:
            self.fail(f"the copy at {commit.seq} is not one of commit {source.seq} (I5)")
        self.count("imported" if other is self else "cloned")

    def _executed(self, commit: Commit, parent: Commit | None) -> None:
        if commit.parent not in self.models:
            self.fail(f"commit {commit.seq} was executed on {commit.parent}, which never was a commit (I3)")
        if self.chosen is not None and commit.parent != self.chosen and not self._repeats(commit, self.chosen):
            self.fail(f"commit {commit.seq} was executed on {commit.parent}, the operator chose {self.chosen} (I11)")
        self.chosen = None
        follows = parent is not None and parent.source is None and parent.query_id == commit.query_id
        if follows and commit.parent not in self.written:
            self.fail(f"commit {commit.seq} follows commit {commit.parent.seq}, whose rows no sink has got (I1)")
        self.models[commit.link], self.seen[commit.link], self.shared[commit.link] = {}, {}, {}
        self.rules[commit.link] = {}
        consumed: list[tuple[str, int]] | None = None
        for operator in commit.operators:
            attempts = self._winners(commit, operator.uid)
            if consumed is not None and sorted(row for a in attempts for row in a.consumed) != sorted(consumed):
                self.fail(f"the winners of {operator.uid} read other rows than {consumed} (I2)")
            consumed = [row for attempt in attempts for row in attempt.emitted]
            state = dict(self.models[commit.parent].get(operator.uid, {}))
            for attempt in attempts:
                state.update(attempt.changed)
            self.models[commit.link][operator.uid] = {key: one for key, one in state.items() if one != EMPTY}
            self._note_seen(commit, operator.uid, attempts)
            self._note_rules(commit, operator.uid, attempts)
        self.count("adopted" if any(tile.snapshot is not None for tile in commit.tiles) else "plain")

    def _repeats(self, commit: Commit, chosen: Link) -> bool:
        """The chosen commit's batch is executed again, because nobody knows if its rows are in the sink."""
        before = self.commit(chosen)
        return (commit.parent, commit.batch, commit.query_id) == (before.parent, before.batch, before.query_id)

    def _winners(self, commit: Commit, operator: str) -> list[AttemptModel]:
        """The attempts of an operator's partitions that the commit names."""
        found: list[AttemptModel] = []
        for part in (part for part in commit.parts if part.operator == operator):
            attempt = self._attempts.get(part.tag)
            if attempt is None or not attempt.finished or attempt.operator != operator:
                self.fail(f"commit {commit.seq} names tag {part.tag} of partition {part.partition}, not finished (I2)")
            elif (attempt.base, attempt.slot) != (commit.parent, commit.seq):
                self.fail(f"the winner of partition {part.partition} ran on {attempt.base} for {attempt.slot} (I3)")
            else:
                found.append(attempt)
        return found

    def _note_seen(self, commit: Commit, operator: str, attempts: list[AttemptModel]) -> None:
        """Checks the lists of the instances, then and now (I4, I5)."""
        before = self.seen[commit.parent].get(operator, [()] * len(attempts))
        found = [attempt.seen_before or () for attempt in attempts]
        if len(found) != len(before):  # the job has another parallelism: all together have what there was
            self.count("redistributed")
            before, found = ([tuple(sorted(itertools.chain(*lists)))] for lists in (before, found))
        if found != before:
            self.fail(f"the lists of {operator} held {found} in batch {commit.batch}, not {before} (I4, I5)")
        self.seen[commit.link][operator] = [attempt.seen for attempt in attempts]
        self.shared[commit.link][operator] = [attempt.shared for attempt in attempts]

    def _note_rules(self, commit: Commit, operator: str, attempts: list[AttemptModel]) -> None:
        """All instances have read the same broadcast rows (I3)."""
        first, *others = [attempt.rules for attempt in attempts]
        if any(rules != first for rules in others):
            self.fail(f"the instances of {operator} hold {first} and {others} after batch {commit.batch} (I3)")
        if first != self.rules[commit.parent].get(operator, {}):
            self.count("rules changed")
        self.rules[commit.link][operator] = first

    def _note_line(self) -> None:
        for who in [who for who in self._needed if who.startswith("commit ")]:
            del self._needed[who]
        for link in self.line():
            self.need(f"commit {link.seq}", link)

    def check_acknowledged(self) -> None:
        """Every batch that Spark has acknowledged is on the line (I1)."""
        commit = self.commit(self.newest) if self.newest != ORIGIN else None
        newest = commit.batch if commit is not None and commit.query_id == self._location.query_id else -1
        if not self.stopped and newest < self._location.acked - 1:
            self.fail(f"batch {self._location.acked - 1} is acknowledged, the line ends at batch {newest} (I1)")

    # --- what must not be deleted ------------------------------------------------------------------------------------

    def need(self, who: str, link: Link) -> None:
        """Somebody needs a whole commit until `let_go`."""
        try:
            names = objects_of(self.views[link], SnapshotReader(self.store, self._job_id()))
        except VarviteError as error:
            self.fail(f"{who} is incomplete: {error} (I1, I7)")
            return
        self._needed[who] = frozenset(map(self._stored, names))
        self._check_exist(who)

    def let_go(self, who: str) -> None:
        self._needed.pop(who, None)

    def _check_exist(self, who: str) -> None:
        self._fail_if(violations_of_needed(self._needed[who], self._disk.objects, who))

    def _stored(self, name: str) -> str:
        """The object's name on the disk."""
        if not layout.is_shared(name):
            return self.names.on_disk(name)
        job, _, own = layout.name_in_storage(name).partition("/")
        assert self._source is not None
        assert job == self._source._job
        return self._source.names.on_disk(own)

    def _job_id(self) -> str:
        assert self.head is not None
        return self.head.job_id

    # --- executions --------------------------------------------------------------------------------------------------

    def attempt(self, task: TaskRequest) -> AttemptModel:
        """The model of an attempt that begins."""
        batch = task.batch
        if batch.base not in self.models:
            self.fail(f"a task is to be executed on {batch.base}, which is no durable commit (I1)")
        operator, parallelism = batch.operator.operator, batch.operator.parallelism
        before = self.models[batch.base].get(operator, {})
        model = AttemptModel(
            task.tag, operator, batch.base, before, task.partition, parallelism, batch.slot, batch.time_ms
        )
        model.shared = self._shared_before(task)
        model.rules = dict(self.rules[batch.base].get(operator, {}))
        self._attempts[task.tag] = model
        return model

    def _shared_before(self, task: TaskRequest) -> Seen:
        """The instance's union list at first: what all instances had, in the first batch of a run."""
        held = self.shared[task.batch.base].get(task.batch.operator.operator, [])
        if task.batch.is_first:
            return tuple(itertools.chain(*held))
        return held[task.partition] if held else ()

    def began(self, task: TaskRequest, state: OperatorState) -> None:
        """The worker has reached the base."""
        backend = state.backend
        if backend is not None and backend.store.version != task.batch.base:
            self.fail(f"a worker at {backend.store.version} executes on {task.batch.base} (I4)")

    def finished(self, model: AttemptModel, rows: list[tuple[str, int]]) -> None:
        """The attempt's summary is made."""
        low, high = model_range(model)
        due = {
            (key, time_ms)
            for key, state in model.before.items()
            for time_ms in state.timers
            if time_ms <= model.time_ms and low <= key_group(key) < high
        }
        if due != model.fired:
            self.fail(f"timers {due} were due at {model.time_ms}, {model.fired} have fired (I5)")
        if rows != model.emitted:
            self.fail(f"the answer has {rows}, the function yielded {model.emitted} (I2)")
        model.finished = True

    # --- the sink ----------------------------------------------------------------------------------------------------

    def sink_begins(self, epoch: int, batch: int, seq: int) -> None:
        entry = self.entries.get(seq)
        if not isinstance(entry, Commit) or entry.batch != batch:
            self.fail(f"the sink got batch {batch} at seq {seq}, which is not committed (I1)")
        if self.owner() > epoch:
            self._late_sinks[epoch] = self._late_sinks.get(epoch, 0) + 1
            self.count("late sink")
            if self._late_sinks[epoch] > 1:
                self.fail(f"run {epoch} called the sink twice after it was fenced (I6)")

    def sink_holds(self, held: SinkCommit, rows: list[tuple[str, int]]) -> None:
        batch, seq = held.batch, held.seq
        commit = self.entries[seq]
        assert isinstance(commit, Commit)
        if not held.is_of(commit):
            self.fail(f"the sink got {held}, the entry's token is {commit.token} (I2)")
        last = commit.operators[-1].uid
        expected = [row for attempt in self._winners(commit, last) for row in attempt.emitted]
        if sorted(rows) != sorted(expected):
            self.fail(f"the sink got {rows} of batch {batch}, the winners' rows are {expected} (I2)")
        self.written.add(commit.link)
        if seq > self.outputs.get(batch, (0, []))[0]:
            self.outputs[batch] = (seq, rows)
        if self.last_output is None or seq > self.last_output.seq:
            self.last_output = held

    # --- whole states ------------------------------------------------------------------------------------------------

    def check_restore(self, link: Link) -> None:
        """A commit restores to what the model says (I5, I9). For the hub: the restore must not pause."""
        self.unchecked = 0
        for operator in self.commit(link).operators:
            found = self._restored(link, operator.uid, operator.key_type)
            expected = self.models[link][operator.uid]
            if found != expected:
                self.fail(f"commit {link.seq} restores to {difference(found, expected)} (I5)")
        self.count("restored")

    def _restored(self, link: Link, operator: str, key_type: str) -> State:
        place = self._directory / f"check-{next(self._checks)}"
        place.mkdir(parents=True)
        try:
            target = RestoreTarget(operator=operator, key_type=key_type, low=0, high=KEY_GROUPS)
            restored = restore(self.views[link], target, self.store, place / "state")
            try:
                return state_of(restored)
            finally:
                restored.close()
        except VarviteError as error:
            self.fail(f"commit {link.seq} cannot be restored: {type(error).__name__}: {error} (I1, I7)")
            raise
        finally:
            remove(place)

    def check_retained(self) -> None:
        """Commits that must be complete can be restored: the newest commits and the oldest."""
        line = self.line()
        for link in dict.fromkeys((*line[:2], *line[-1:])):
            self.check_restore(link)

    @property
    def fail(self) -> Callable[[str], Any]:
        return self._scheduler.fail


def state_of(store: WorkingStore) -> State:
    """Content of a store, in the model's form."""
    found: dict[str, KeyState] = {}

    def at(key: str) -> KeyState:
        return found.get(key, EMPTY)

    for schema in store.schemas:
        table = table_of(store, schema)
        for row in table.items():
            if schema.kind == "timers":
                time_ms, key, _ = table.form.unpack(row[1])
                found[key] = at(key)._replace(timers=tuple(sorted((*at(key).timers, time_ms))))
                continue
            _, key, *cell = row
            if schema.name == "total":
                found[key] = at(key)._replace(total=cell[0])
            elif schema.name == "by_name":
                entries = {**dict(at(key).by_name), cell[0]: cell[1]}
                found[key] = at(key)._replace(by_name=tuple(sorted(entries.items())))
            else:
                found[key] = at(key)._replace(events=tuple(cell[0]))
    return found
