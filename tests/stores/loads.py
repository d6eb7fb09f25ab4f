"""Loads of a storage for as long as its servers fail: commits, folds, races for names, uploads.

Each goes on, step by step, tries again what fails for a passing reason, and checks at the end that nothing that was
acknowledged is lost or there twice.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.jobs.committing_job import CommittingJob, random_batch
from tests.jobs.materializer_world import World
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.reading.checkpoints import line_commits
from varvite.materializer.verify.verifier import verify
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import RetryableError
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.transfer.claim import claim
from varvite.storage.transfer.upload import Uploader, UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from varvite.storage.format.records import Link
    from varvite.storage.object_stores.remote.store import RemoteStore

    Opened = Callable[[str], RemoteStore]
    Crashes = Callable[[Callable[[], None]], None]

PATIENCE_S: Final = 120.0
FOLD_EVERY: Final = 4
RACERS: Final = 3
UPLOADS_AT_ONCE: Final = 4
STEPS_BETWEEN: Final = 3
"""Least work of every load between two crashes."""


class Load(threading.Thread):
    """Something that goes on, step by step, and tries again what fails for a passing reason."""

    def __init__(self, store: RemoteStore, seed: int) -> None:
        """`store` has nothing in it yet."""
        super().__init__(name=type(self).__name__, daemon=True)
        self.store = store
        self.rng = random.Random(seed)
        self.steps = 0
        self.failures = 0
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._is_done():
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001  whatever it is, the test must see it
            self.error = error

    def _is_done(self) -> bool:
        """One step; whether it was done and is to be the last."""
        try:
            self.step()
        except RetryableError:
            self.failures += 1
            return False
        self.steps += 1
        return self._ended.is_set()

    def step(self) -> None:
        raise NotImplementedError

    def await_steps(self, steps: int) -> None:
        """Until it has done so many."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.steps < steps:
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline_s, f"{self.name} hangs after {self.steps} steps"
            time.sleep(0.01)

    def end(self) -> None:
        """After a step that is done."""
        self._ended.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


class Commits(Load):
    """A job commits batches; after a failure a new run takes over, as a restarted query would."""

    def __init__(self, store: RemoteStore, seed: int) -> None:
        super().__init__(store, seed)
        self.job = CommittingJob(PrefixedStore(self.store, "job"), SystemClock())
        self.acknowledged: list[Link] = []

    def step(self) -> None:
        try:
            if self.job.run is None:
                self.job.start()
            changes = random_batch(self.rng)
            commit = self.job.commit(changes, upload=self.rng.random() < 0.3, parts=self.rng.randint(1, 2))
            self.acknowledged.append(commit.link)
        except RetryableError:
            self.job.close()
            raise

    def check(self) -> None:
        assert self.job.run is not None
        reader = ChainReader(self.job.store, self.job.run.record.job_id)
        line = [stored.commit for stored in line_commits(reader)][::-1]
        assert [commit.link for commit in line] == self.acknowledged, (
            "what was acknowledged, and nothing else, in order"
        )
        assert [commit.batch for commit in line] == list(range(len(line)))
        assert verify(self.job.store, "job", SystemClock(), SystemTokens()).problems == []
        self.job.close()


class Folds(Load):
    """A job beside which a materializer folds and collects."""

    def __init__(self, store: RemoteStore, seed: int, directory: Path) -> None:
        super().__init__(store, seed)
        self.world = World(directory, self.store, started=False)
        self.sidecar = self.world.sidecar()

    def step(self) -> None:
        job = self.world.job
        try:
            if job.run is None:
                job.start()
            self.world.commit(upload=self.rng.random() < 0.5)
        except RetryableError:
            job.close()
            raise
        if job.batch % FOLD_EVERY == 0:
            self.sidecar.fold()  # what it cannot do is in its events, and is tried again

    def check(self) -> None:
        assert self.sidecar.fold(), self.sidecar.events.all[-3:]
        self.world.commit(2)
        assert self.world.job.adopted
        self.world.check()
        assert verify(self.world.store, "job", SystemClock(), SystemTokens()).problems == []
        self.world.close()


class Races(Load):
    """Threads that claim the same names."""

    def __init__(self, store: RemoteStore, seed: int) -> None:
        super().__init__(store, seed)
        self.outcomes: dict[str, list[tuple[str, bytes | None]]] = {}
        """Name → (token, the other's body if it was lost) of all racers."""

    def step(self) -> None:
        name = f"chain/{self.steps:05d}"
        outcomes: list[tuple[str, bytes | None]] = []
        racers = [threading.Thread(target=self._claim, args=(name, outcomes), daemon=True) for _ in range(RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        self.outcomes[name] = outcomes

    def _claim(self, name: str, outcomes: list[tuple[str, bytes | None]]) -> None:
        token = SystemTokens().token()
        while True:
            with suppress(RetryableError):  # then the same body again: it may be there
                outcomes.append((token, claim(self.store, name, token.encode(), token, SystemClock()).body))
                return

    def check(self) -> None:
        listed = [meta.name for meta in self.store.list("")]
        for name, outcomes in self.outcomes.items():
            winners = [token.encode() for token, other in outcomes if other is None]
            assert len(winners) == 1, f"{name} was won {len(winners)} times"
            assert {other for _, other in outcomes if other is not None} == set(winners)
            assert self.store.get(name) == winners[0]
            assert name in listed


class Uploads(Load):
    """Objects of their own names, several at once."""

    def __init__(self, store: RemoteStore, seed: int) -> None:
        super().__init__(store, seed)
        policy = UploadPolicy(uploads=UPLOADS_AT_ONCE, hedge_after_s=1.0, deadline_s=20.0)
        self.uploader = Uploader(self.store, SystemClock(), policy)
        self.acknowledged: dict[str, int] = {}
        """Name → CRC-32."""

    def step(self) -> None:
        begun: dict[str, tuple[int, Future[None]]] = {}
        for number in range(UPLOADS_AT_ONCE):
            data = self.rng.randbytes(self.rng.choice([10, 10_000, 200_000]))
            name = f"seg/{self.steps:05d}/{self.failures}-{number}"
            begun[name] = zlib.crc32(data), self.uploader.submit_bytes(name, data)
        errors = [future.exception() for _, future in begun.values()]
        self.acknowledged |= {name: crc for name, (crc, future) in begun.items() if future.exception() is None}
        for error in errors:
            if error is not None:
                raise error

    def check(self) -> None:
        self.uploader.close()
        listed = {meta.name for meta in self.store.list("")}
        assert self.acknowledged.keys() <= listed
        assert {name: zlib.crc32(self.store.get(name)) for name in self.acknowledged} == self.acknowledged


def endure(opened: Opened, directory: Path, crashes: Crashes) -> None:
    """Put all loads on a storage while it fails, and check them when it is well again.

    Args:
        opened: Opens the store at a name below a new location.
        directory: For local files.
        crashes: Lets the storage fail, and ends when it is well. It gets a function that waits until all loads have
            gone on for some steps.
    """
    loads: tuple[Commits | Folds | Races | Uploads, ...] = (
        Commits(opened("commits"), 1),
        Folds(opened("folds"), 2, directory),
        Races(opened("races"), 3),
        Uploads(opened("uploads"), 4),
    )

    def await_all() -> None:
        for load in loads:
            load.await_steps(load.steps + STEPS_BETWEEN)

    for load in loads:
        load.start()
    crashes(await_all)
    await_all()
    for load in loads:
        load.end()
    assert sum(load.failures for load in loads) > 0, "nothing was ever in doubt"
    for load in loads:
        load.check()
