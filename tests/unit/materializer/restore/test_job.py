"""Setting a job back while a request of its stopped driver is still on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs.committing_job import CommittingJob
from tests.jobs.materializer_world import IDLE
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit.state import CommitPolicy
from varvite.materializer.restore.decision import RequestedCheckpoint
from varvite.materializer.restore.job import JobRestore
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import MayHaveHappenedError, StateMissingError
from varvite.storage.format.records import Commit
from varvite.storage.job.record import read_job
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable


class SlowToArrive(MemoryStore):
    """Put-if-absents while `holds` is set arrive before the next one after that."""

    holds = False

    def __init__(self) -> None:
        super().__init__()
        self._late: list[Callable[[], object]] = []

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.holds:
            self._late.append(lambda: MemoryStore.put_if_absent(self, name, data))
            raise MayHaveHappenedError("timed out", object_name=name)
        late, self._late = self._late, []
        for arrive in late:
            arrive()
        return super().put_if_absent(name, data)


@pytest.fixture
def store() -> SlowToArrive:
    """A job whose last commit, of batch 6, has not arrived when it is stopped."""
    store = SlowToArrive()
    job = CommittingJob(store, ManualClock(), policy=CommitPolicy(retained=2, full_every=1))
    job.start()
    for _ in range(6):
        job.commit(IDLE)  # a full entry, which needs nothing older
    store.holds = True
    with pytest.raises(MayHaveHappenedError):
        job.commit(IDLE)
    store.holds = False
    job.close()
    return store


def restore(store: SlowToArrive) -> JobRestore:
    return JobRestore("job", store, read_job(store), None, clock=ManualClock(), tokens=SystemTokens())


def complete(store: SlowToArrive) -> list[int]:
    """Seqs of the commits that the job can go back to."""
    reader = ChainReader(store, read_job(store).job_id)
    head = reader.head()
    assert head is not None
    entries = [reader.read(seq).entry for seq in reader.list_seqs()]
    return [entry.seq for entry in entries if isinstance(entry, Commit) and bounds_of(head).is_complete(entry)]


def test_what_is_complete_no_longer_when_the_fence_is_put_is_not_chosen(store: SlowToArrive) -> None:
    """The job would refuse to start."""
    oldest = complete(store)[0]
    with pytest.raises(StateMissingError, match="no checkpoint is complete and matches the request"):
        restore(store).to_checkpoint(RequestedCheckpoint(seq=oldest))
    assert oldest not in complete(store)
    head = ChainReader(store, read_job(store).job_id).head()
    assert isinstance(head, Commit), "nothing was chosen"


def test_the_newest_is_the_one_that_is_there_when_the_fence_is_put(store: SlowToArrive) -> None:
    newest = complete(store)[-1]
    done = restore(store).to_checkpoint(RequestedCheckpoint())
    assert (done.seq, done.batch) == (newest + 1, 6)
    assert complete(store)[-1] == newest + 1
