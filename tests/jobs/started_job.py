"""A job that is started from the state of another one in the same world, and what it is started from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.jobs.committing_job import CommittingJob, NumberedTokens, restored_cells
from tests.jobs.materializer_world import World
from varvite.changelog.retention.savepoints import create_native
from varvite.materializer.restore.origin import StateOrigin
from varvite.materializer.savepoints.canonical import CanonicalSavepoints
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.format.records import Commit, Savepoint

TOKENS = NumberedTokens("savepoints")


def native(world: World, commit: Commit | None = None, name: str = "before") -> Savepoint:
    return create_native(
        world.reader, commit or world.newest(), name, job="job", holder="test", clock=world.clock, tokens=TOKENS
    )


def canonical(world: World, commit: Commit | None = None, name: str = "before") -> Savepoint:
    scratch = world.directory / f"canonical-{TOKENS.token()}"
    scratch.mkdir()
    writer = CanonicalSavepoints(world.reader, "job", world.store, scratch, clock=world.clock, tokens=TOKENS)
    return writer.create(commit or world.newest(), name, "test")


def checkpoint(world: World, commit: Commit | None = None, _name: str = "") -> None:
    """Nothing is made: the newest checkpoint is where the other job starts."""


MAKERS: dict[str, Callable[..., Savepoint | None]] = {
    "native": native,
    "canonical": canonical,
    "checkpoint": checkpoint,
}


def origin_of(world: World, savepoint: Savepoint | None) -> StateOrigin:
    commit = world.newest() if savepoint is None else savepoint.commit
    return StateOrigin("there", world.store, commit, savepoint)


class Started:
    """A second job in the world, started from the first one's state."""

    def __init__(
        self,
        world: World,
        origin: StateOrigin,
        *,
        clone: bool = False,
        name: str = "other",
        model: Any = None,
        **job: Any,
    ) -> None:
        self.world = world
        self.store = JobStore(world.root, name)
        self.job = CommittingJob(self.store, world.clock, **{"name": name, "query": "other", **job})
        self.model = model or world.job.models[origin.commit.link]
        self.job.start_from(origin, self.model, clone=clone)
        self._checks = 0

    def names(self, prefix: str) -> list[str]:
        """Of the job's objects."""
        return [meta.name for meta in self.store.list(prefix)]

    def check(self) -> None:
        """The newest commit restores to the model."""
        assert self.job.run is not None
        base = self.job.run.state.base
        assert base is not None
        self._checks += 1
        directory = self.world.directory / f"other-{self._checks}-{TOKENS.token()}"
        assert restored_cells(self.store, base.job_id, base.link, directory) == self.job.models[base.link].cells()


def fill(world: World) -> None:
    """Tiles, uploaded and inline segments, and a second parallelism."""
    world.commit(3, upload=True)
    world.commit(3)
    world.sidecar().fold()
    world.commit(2)
    world.commit(2, upload=True, parts=3)
    world.job.parallelism = 3
    world.job.start()
    world.commit(3)
