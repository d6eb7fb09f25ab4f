"""The output of `varvite verify --repair`: the health of each retained checkpoint, losses, advice and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.progress import shown_steps
from varvite.materializer.verify.repair import Repair, newest_rebuildable
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.job.record import read_job
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.materializer.verify.health import CheckpointHealth
    from varvite.materializer.verify.verifier import Verification
    from varvite.storage.object_stores.contract import ObjectStore


class RepairChoice(NamedTuple):
    """The options of a repair."""

    applies: bool = False
    """Repair; otherwise only print advice."""
    stopped: bool = False
    """Repair by a new entry; otherwise by snapshots."""
    seq: int | None = None
    """The checkpoint whose state the entry gets; None: the newest that is not lost."""


class HealthLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line for each retained checkpoint, the newest first."""

    job: str
    seq: int
    batch: int | None
    time: str | None
    state: str
    """`whole`, `rebuildable` or `lost`."""
    detail: str
    """Sources of the rebuilt state, or the lost parts."""


class ActionLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line for each action, done or possible."""

    job: str
    done: bool
    action: str


def repair_job(store: ObjectStore, verification: Verification, choice: RepairChoice, *, as_json: bool) -> None:
    """Show advice about a job's damage, and repair it if the options say so.

    Args:
        store: Rooted at the job.
        verification: The result of `verify`.
        choice: The options.
        as_json: JSON lines instead of tables.

    Raises `VarviteError` if the repair fails.
    """
    job = verification.job
    try:
        record = read_job(store)
    except (CorruptDataError, MissingObjectError) as error:
        _show(job, as_json, [f"nothing can be repaired without job.json: bring it back from a copy ({error})"])
        return
    damaged = {problem.object_name for problem in verification.problems}
    with shown_steps("examining the checkpoints"):
        repair = Repair(store, record, damaged, SystemClock(), SystemTokens())
    show_lines([_health_line(job, checkpoint) for checkpoint in repair.checkpoints], as_json=as_json)
    _show(job, as_json, advice(verification, repair.checkpoints))
    if not choice.applies:
        return
    if not repair.is_needed and repair.checkpoints:
        show_nothing_repaired(job, choice, as_json=as_json)
    elif repair.is_needed:
        with shown_steps("repairing"):
            actions = _apply(repair, choice)
        _show(job, as_json, actions, is_done=True)


def show_nothing_repaired(job: str, choice: RepairChoice, *, as_json: bool) -> None:
    """Print that no repair is needed.

    Raises `InvalidRequestError` if the options choose a checkpoint: the job will not continue from it.
    """
    reason = "nothing that the newest checkpoint needs is damaged"
    if choice.seq is not None:
        raise InvalidRequestError(
            f"nothing was repaired, and the next start does not go on from checkpoint {choice.seq}: {reason}; to go "
            f"back to it all the same: `varvite restore {job} --checkpoint {choice.seq}`"
        )
    _show(job, as_json, [f"nothing was repaired: {reason}"])


def _apply(repair: Repair, choice: RepairChoice) -> list[str]:
    if not choice.stopped:
        return [
            f"snapshot {new.number} of {new.operator}[{new.low},{new.high}) at checkpoint {new.seq} is published; the "
            "job adopts it with its next checkpoint"
            for new in repair.publish_snapshots()
        ]
    if choice.seq is None:
        target = newest_rebuildable(repair.checkpoints)
    else:
        target = next((checkpoint for checkpoint in repair.checkpoints if checkpoint.link.seq == choice.seq), None)
    if target is None or target.commit is None:
        raise InvalidRequestError("there is no such checkpoint that can be rebuilt; see the list above")
    fence = repair.write_entry(target)
    text = (
        f"entry {fence.restore} has the state of checkpoint {target.link.seq}; the next start goes on from it, with "
        f"Spark's checkpoint location as it was after batch {target.commit.batch}"
    )
    return [text]


def advice(verification: Verification, checkpoints: Sequence[CheckpointHealth]) -> list[str]:
    """Possible actions, one sentence each."""
    return [
        *_about_checkpoints(verification.job, checkpoints),
        *_about_whole_savepoints(verification, checkpoints),
        *_about_savepoints(verification, checkpoints),
        *_about_unreadable(verification),
    ]


def _about_checkpoints(job: str, checkpoints: Sequence[CheckpointHealth]) -> Iterator[str]:
    if not checkpoints:
        yield "no checkpoint can be read; start from a savepoint, or bring the storage back from a copy"
        return
    newest, whole = checkpoints[0], next((checkpoint for checkpoint in checkpoints if checkpoint.is_whole), None)
    best = newest_rebuildable(checkpoints)
    if all(checkpoint.is_whole for checkpoint in checkpoints):
        yield "every retained checkpoint is whole"
    elif newest.is_whole:
        yield "the newest checkpoint is whole; damaged objects of older ones are deleted with them"
    elif newest.is_rebuildable:
        yield (
            "the newest checkpoint can be rebuilt without loss: while the job runs with --repair --apply, if it is "
            "stopped with --repair --apply --stopped"
        )
    elif best is not None:
        seq = best.link.seq
        command = f"varvite verify {job} --repair --apply --stopped --checkpoint {seq}"
        spark = f"varvite restore {job} --spark-checkpoint URL"
        lost = _batches(best, newest)
        yield f"what came after checkpoint {seq} is lost: {lost}; stop the job, `{command}`, then `{spark}`"
        if newest.commit is None:
            yield (
                f"the newest entry, {layout.chain(newest.link.seq)}, cannot be read, and nothing can be added after "
                "it: move it out of the storage first, and keep it"
            )
    else:
        yield "no retained checkpoint can be rebuilt; start from a savepoint, or bring the objects back from a copy"
    if whole is not None and whole is not newest:
        command = f"varvite restore {job} --checkpoint {whole.link.seq}"
        yield f"the newest checkpoint that is whole as it is: {whole.link.seq}; to go back to it: `{command}`"


def _about_whole_savepoints(verification: Verification, checkpoints: Sequence[CheckpointHealth]) -> Iterator[str]:
    """The savepoints to go back to, the newest first, if the newest checkpoint is not whole."""
    if checkpoints and checkpoints[0].is_whole:
        return
    for savepoint in sorted(verification.whole_savepoints, key=lambda savepoint: -savepoint.commit.seq):
        yield (
            f"savepoint {savepoint.name!r}, of checkpoint {savepoint.commit.seq} (batch {savepoint.commit.batch}), is "
            f"whole; to go back to it: `varvite restore {verification.job} --savepoint {savepoint.name}`"
        )


def _batches(best: CheckpointHealth, newest: CheckpointHealth) -> str:
    if best.commit is None:
        return "its batches"
    last = "" if newest.commit is None else f" to {newest.commit.batch}"
    return f"batches from {best.commit.batch + 1}{last} must be executed again"


def _about_savepoints(verification: Verification, checkpoints: Sequence[CheckpointHealth]) -> Iterator[str]:
    retained = {checkpoint.link: checkpoint for checkpoint in checkpoints}
    for savepoint in verification.damaged_savepoints:
        same = retained.get(savepoint.commit.link)
        if same is not None and same.is_whole:
            command = f"varvite savepoint create {verification.job} NAME --format {savepoint.format}"
            yield (
                f"savepoint {savepoint.name!r} is damaged, and the checkpoint with its state is whole: make a new one "
                f"with `{command} --checkpoint {same.link.seq}`, then delete the damaged one"
            )
        else:
            yield f"savepoint {savepoint.name!r} is damaged, and no whole checkpoint has its state: it is lost"


def _about_unreadable(verification: Verification) -> Iterator[str]:
    """Advice about unreadable pins and savepoint manifests, which stop every garbage collection while they exist."""
    job = verification.job
    readable = {layout.savepoint(savepoint.name) for savepoint in verification.damaged_savepoints}
    for name in dict.fromkeys(problem.object_name for problem in verification.problems):
        if name.startswith(layout.PINS):
            yield (
                f"{name} cannot be read, so nothing of the job is deleted any more; when no reader is left that may "
                f"have made it: `varvite pins release {job} {layout.text_of(name)} --damaged`"
            )
        elif name.startswith(layout.SAVEPOINTS) and name not in readable:
            savepoint = layout.text_of(name)
            hold = ", on which a copy or a clone of the job may depend" if layout.is_hold(savepoint) else ""
            yield (
                f"{name} cannot be read{hold}, so nothing of the job is deleted any more; bring it back from a copy, "
                f"or give it up: `varvite savepoint delete {job} {savepoint} --damaged`"
            )


def _health_line(job: str, checkpoint: CheckpointHealth) -> HealthLine:
    if checkpoint.is_whole:
        state, detail = "whole", ""
    elif checkpoint.is_rebuildable:
        state, detail = "rebuildable", ", ".join(_sources(checkpoint))
    else:
        state, detail = "lost", ", ".join(checkpoint.lost)
    commit = checkpoint.commit
    return HealthLine(
        job=job,
        seq=checkpoint.link.seq,
        batch=None if commit is None else commit.batch,
        time=None if commit is None else utc_time(commit.time_ms),
        state=state,
        detail=detail,
    )


def _sources(checkpoint: CheckpointHealth) -> Iterator[str]:
    for health in checkpoint.ranges:
        if health.way is not None and not health.is_whole:
            at = min(tile.at.seq for tile in health.way.view.tiles_for(health.operator, health.low, health.high))
            base = f"the base of checkpoint {at}" if at else "the empty state"
            yield f"{health.operator}[{health.low},{health.high}) from {base} and the log since"
    if not checkpoint.has_own_images:
        yield "non-keyed state from older copies"


def _show(job: str, as_json: bool, texts: Sequence[str], *, is_done: bool = False) -> None:
    if texts:
        show_lines([ActionLine(job=job, done=is_done, action=text) for text in texts], as_json=as_json)
