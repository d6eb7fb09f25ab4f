"""Bugs that seeds have found, each with a run that meets it again as soon as its repair is undone.

A script (`scripts/*.txt`) is such a run as a text of effects. A seed means the same run only until something takes
another number of steps, so it may cease to meet its bug although nothing is wrong. `test_whole_system.py` makes each
run with the repair and without; where the latter finds nothing any more, `python -m tests.simulation.system 0 --seeds
500 --broken "<the bug>"` tells which seeds do, and with `--script` which script does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace as replace_fields

from tests.simulation.system.bugs.script import read_script
from tests.simulation.system.bugs.search import ordinary_options
from tests.simulation.system.mutations import BACK, MUTATIONS, REDONE, Mutation
from tests.simulation.system.options import options_of
from tests.simulation.system.simulation import simulate
from tests.simulation.system.spark.engine import Answer
from tests.simulation.system.store import NO_FAULTS, StoreFaults
from varvite.changelog.commit import base_decision
from varvite.changelog.commit import run as job_run
from varvite.changelog.commit.adoption_rules import shared_files
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention import collector
from varvite.materializer.fold import range_fold as range_materializer
from varvite.materializer.restore import origin as state_origin
from varvite.materializer.restore.job import JobRestore

if TYPE_CHECKING:
    import pyarrow as pa


class FoundBug(NamedTuple):
    """A bug and the run that meets it."""

    run: int | str
    """A seed, or the name of a script."""
    undone: Mutation
    """The system without the repair, and options that the bug needs."""

    def simulate(self) -> None:
        """Make the run, with the product as it is now. Raises what it finds."""
        if isinstance(self.run, int):
            simulate(self.run, self.undone.options_of(options_of(self.run)))
            return
        simulate(0, ordinary_options(self.undone.options), script=read_script(self.run))


def _only_own_rows_looked_at(original: Any, self: Answer, partition: int, *parallelism: int) -> list[pa.RecordBatch]:
    """A block that has no rows for the task is not looked at, whoever made it."""
    read: dict[int, Any] = {}
    for number, (tag, rows) in self.blocks.items():
        alone = Answer(self.cluster, {number: (tag, rows)}, winners=frozenset([tag]))
        if original(alone, partition, *parallelism):
            read[number] = tag, rows
    return original(replace(self, blocks=read), partition, *parallelism)


def _copied_state_is_its_own(original: Any, newest: Any, source: Any, own_job_id: str, query_id: str | None) -> Any:
    """State that a killed start has copied then counts as state that the job has made itself."""
    if newest is not None and newest.source not in (None, source):
        newest = replace_fields(newest, source=None, query_id="another")
    return original(newest, source, own_job_id, query_id)


def _whatever_is_listed_is_known(_original: Any, *_names_and_head: Any) -> bool:
    """A collector that is behind another one does not notice, if what it would read is gone already."""
    return True


def _choice_is_not_for_batch_0(
    original: Any, spark: Any, newest: Any, parent: Any, sink: Any, restore: Any, rules: Any
) -> Any:
    """A first batch that has a commit already is executed on that commit's base, whatever was chosen since."""
    if spark.batch == newest.batch == 0 and restore is not None and restore.commit != parent:
        restore = None
    return original(spark, newest, parent, sink, restore, rules)


def _planned_once(original: Any, self: JobRestore, wanted: Any, spark: Any, **given: Any) -> Any:
    """A checkpoint that was complete when the command began is chosen, whatever has come before its fence."""
    plans = vars(self).setdefault("plans", [])
    if not plans:
        plans.append(original(self, wanted, spark, **given))
    return plans[0]


def _nothing_chosen(_original: Any, _fence: Any) -> None:
    """A query looks for what its option names also if an operator has chosen something else."""


def _files_not_looked_at(original: Any, view: Any, snapshots: Any, _tile_files: Any) -> Any:
    """A snapshot that shares files is waited for, whatever the tile names."""
    return original(view, snapshots, frozenset().union(*map(shared_files, snapshots)))


PLAIN: Final[dict[str, Any]] = {
    "ruled": False, "real_rocksdb": False, "hang": 0.0, "hedged": False, "encrypted": False,
    "log_elsewhere": False, "local_copies": False
}  # fmt: skip
"""Without what came to the simulation later, and the same run each time."""
ALONE: Final[dict[str, Any]] = PLAIN | {"restores": 0.0, "clones": 0.0}
ONE_DRIVER: Final[dict[str, Any]] = PLAIN | {"drivers": 1, "crashes": 0.0, "step_s": 0.1}
STALLED_BEFORE_ACK: Final[dict[str, Any]] = ONE_DRIVER | {
    "restores": 0.15, "clones": 0.0, "readers": 0, "steps": 800, "stalls": 0.01, "stall_max_s": 20.0,
    "sink_tells": True, "policy": CommitPolicy(retained=3, full_every=3, path_max=4)
}  # fmt: skip
LATE_COMMITS: Final[dict[str, Any]] = ONE_DRIVER | {
    "restores": 0.3, "clones": 0.0, "readers": 0, "steps": 800, "stalls": 0.0, "changelog": True,
    "faults": StoreFaults(late=0.2, late_max_s=6.0), "takeovers": 0.0,
    "policy": CommitPolicy(full_every=1, path_max=1), "forges": False, "disorder": 0.0
}  # fmt: skip
SAVEPOINTS_GO: Final[dict[str, Any]] = ONE_DRIVER | {
    "restores": 0.1, "clones": 0.3, "readers": 2, "steps": 1500, "stalls": 0.0, "changelog": True, "faults": NO_FAULTS
}  # fmt: skip
OFTEN_SET_BACK: Final[dict[str, Any]] = ONE_DRIVER | {
    "restores": 0.1, "clones": 0.0, "steps": 1200, "stalls": 0.0, "changelog": True, "faults": NO_FAULTS,
    "materializers": 1, "collectors": 1, "forges": False, "rescales": False, "quiet_batches": 20
}  # fmt: skip
SLOW_COLLECTORS: Final[dict[str, Any]] = ONE_DRIVER | {
    "restores": 0.0, "clones": 0.0, "readers": 0, "steps": 1500, "stalls": 0.02, "stall_max_s": 60.0,
    "changelog": True, "faults": NO_FAULTS, "materializers": 1, "collectors": 3, "forges": False, "takeovers": 0.0,
    "policy": CommitPolicy(full_every=1, path_max=1, retained=2)
}  # fmt: skip
FOUND: Final[dict[str, FoundBug]] = {
    "changelog off: an attempt that lost was read back from the local disk, at the version of the commit": FoundBug(
        "attempt-that-lost-is-read-back",
        replace(MUTATIONS["a fold before the commit leaves no mark"][0], options=BACK | ALONE),
    ),
    "a lost block of an operator was made anew without rows, and the next operator read nothing instead": FoundBug(
        "lost-block-is-made-anew-without-rows",
        Mutation(
            Answer, "of", _only_own_rows_looked_at, r"read other rows .*\(I2\)", REDONE | ALONE | {"chained": True}
        ),
    ),
    "a clone whose first run was killed after the copy never started, because its source had gone on": FoundBug(
        14,
        Mutation(
            job_run,
            "decide_import",
            _copied_state_is_its_own,
            r"no batch is acknowledged \(I11\)",
            PLAIN | {"clones": 0.2, "crashes": 0.01},
        ),
    ),
    "a query's first batch was executed on its old base although the operator had chosen another one": FoundBug(
        "choice-of-the-operator-is-not-for-batch-0",
        Mutation(
            base_decision, "_continue", _choice_is_not_for_batch_0, r"the operator chose .*\(I11\)", STALLED_BEFORE_ACK
        ),
    ),
    "a checkpoint was chosen that a late commit of the stopped driver had made incomplete": FoundBug(
        290, Mutation(JobRestore, "_plan", _planned_once, r"no longer complete.* \(I1, I11\)", LATE_COMMITS)
    ),
    "a query that was set back did not start because its option named a savepoint that was gone": FoundBug(
        62,
        Mutation(state_origin, "next_restore", _nothing_chosen, r"does not need its source .*\(I11\)", SAVEPOINTS_GO),
    ),
    "a snapshot was waited for for ever that the job could not adopt since it was set back to an import": FoundBug(
        193,
        Mutation(
            range_materializer, "awaited_of", _files_not_looked_at, r"does not get shorter \(I10\)", OFTEN_SET_BACK
        ),
    ),
    "a collector that stood still before it listed the chain deleted a snapshot that is in use": FoundBug(
        177,
        Mutation(collector, "is_known", _whatever_is_listed_is_known, r"was deleted, which .*\(I7\)", SLOW_COLLECTORS),
    ),
}
"""The bug → its run."""
