"""An operator who stops the job and sets it back with `varvite restore`, to an older checkpoint or to a savepoint.

The command may be killed at any effect, and is then called again until it has succeeded; the job stays stopped.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.system.scheduler import Process, ProcessClock
from tests.simulation.system.spark.cached_location import CachedLocation
from tests.simulation.system.spark.location import LocationFiles, StoredFiles
from varvite.materializer.restore.decision import RequestedCheckpoint
from varvite.materializer.restore.job import JobRestore
from varvite.materializer.restore.origin import find_origin
from varvite.storage.errors import InvalidRequestError, StartError, VarviteError
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.whole_objects import WholeObjects

if TYPE_CHECKING:
    from tests.simulation.system.job import SimulatedJob
    from tests.simulation.system.oracle import Oracle


@dataclass(frozen=True)
class Choice:
    """Choice of the operator."""

    seq: int | None
    """Checkpoint; None: the newest that fits."""
    savepoint: str | None
    anew: bool
    """With a new checkpoint location; else Spark's is set back."""


def choose(oracle: Oracle, rng: random.Random) -> Choice:
    """A checkpoint that is complete, or a savepoint."""
    savepoints = oracle.savepoints()
    savepoint = rng.choice(savepoints) if savepoints and rng.random() < 0.7 else None
    seq = rng.choice(oracle.line()).seq if savepoint is None and rng.random() < 0.8 else None
    return Choice(seq, savepoint, anew=rng.random() < 0.3)


def location_of(system: SimulatedJob) -> WholeObjects | None:
    """The location that the command sets back; None if the job names none."""
    location = system.location
    if isinstance(location, CachedLocation):
        return None if location.is_private else StoredFiles(lambda: location.files, system.scheduler.pause)
    return LocationFiles(location, system.scheduler.pause)


def restore(system: SimulatedJob, process: Process, choice: Choice) -> None:
    """One call of the command; what it has not done is for the next one."""
    clock = ProcessClock(system.scheduler, process)
    store = JobStore(system.store_of(process), system.name)
    spark = None if choice.anew else location_of(system)
    try:
        command = JobRestore(system.name, store, read_job(store), spark, clock=clock, tokens=system.tokens)
        if choice.savepoint is not None:
            done = command.to_origin(find_origin(choice.savepoint, store))
        else:
            done = command.to_checkpoint(RequestedCheckpoint(choice.seq))
    except (StartError, InvalidRequestError) as error:
        system.note(f"{process.name}: refused: {error}")
        if system.location.is_torn and not choice.savepoint:
            system.scheduler.fail(f"a restore that was stopped half-way cannot be done again: {error} (I11)")
        system.oracle.count("restore refused")
        # An earlier call may have taken the savepoint that is gone now.
        system.restored(None, instead=Choice(None, None, choice.anew) if choice.savepoint else None)
    except VarviteError as error:
        system.note(f"{process.name}: {error}")
    else:
        if choice.anew:
            system.location.begin_anew()
        system.oracle.count("set back to a savepoint" if choice.savepoint else "set back")
        system.restored(done.seq)
