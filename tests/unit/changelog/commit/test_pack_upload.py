"""Packs that are stored late or never: the job goes on, and its end does not wait."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.jobs.chain_job import results_of
from tests.stores.manual_clock import ManualClock
from varvite.changelog.commit import pack_upload
from varvite.changelog.commit import plan as commit_plan
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, entry_time
from varvite.changelog.commit.run import JobRun, nothing_to_adopt
from varvite.changelog.commit.state import CommitPolicy
from varvite.storage import attempt_threads
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import OperatorLayout
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.slice_reader import read_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.commit.run import AdoptionSource
    from varvite.storage.format.records import Commit


class Refusing(MemoryStore):
    """Refuses packs, as a log storage of its own that is down; repaired, it stores them once the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = True
        self.gate = threading.Event()

    def put(self, name: str, data: bytes) -> None:
        if name.startswith(layout.PACKS):
            if self.is_down:
                raise DidNotHappenError("the log storage is down", object_name=name)
            assert self.gate.wait(60)
        super().put(name, data)


class Hanging(MemoryStore):
    """Its puts of packs hang until the gate is opened, but for those of slots that are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.let_through = range(0)
        self.hanging: list[int] = []
        """Slots of the packs that hang."""
        self.has_begun = threading.Event()
        """One has begun to hang."""
        self.reads_hang = False

    def put(self, name: str, data: bytes) -> None:
        if name.startswith(layout.PACKS) and layout.slot_of(name).slot not in self.let_through:
            self._hang(layout.slot_of(name).slot)
        super().put(name, data)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        if self.reads_hang:
            self._hang(-1)
        return super().get_range(name, offset, length)

    def _hang(self, slot: int) -> None:
        self.hanging.append(slot)
        self.has_begun.set()
        assert self.gate.wait(60)
        self.hanging.remove(slot)

    def slots_of_packs(self) -> list[int]:
        return [layout.slot_of(meta.name).slot for meta in self.list(layout.PACKS)]


@pytest.fixture
def store() -> Iterator[Hanging]:
    store = Hanging()
    yield store
    store.gate.set()


def run_on(store: MemoryStore, policy: CommitPolicy, batch: int = 0) -> JobRun:
    """A run of the job that has taken over, and goes on with this batch."""
    run = JobRun.open(store, "job", 8, policy, ManualClock(), SystemTokens())
    run.take_over()
    run.choose_base(SparkProgress(batch, "q", f"{batch}", f"{batch - 1}" if batch else None), None)
    return run


def commit(run: JobRun, batch: int, adoption: AdoptionSource = nothing_to_adopt) -> Commit:
    base = run.state.base
    facts = BatchFacts(
        batch=batch,
        query_id="q",
        source_hash=f"{batch}",
        time_ms=entry_time(base, 1),
        watermark_ms=None,
        operators=(OperatorLayout(uid="op", parallelism=2, key_type="1:string", changelog=True, backend="hashmap"),),
        results=results_of([b"first", b"second"]),
    )
    made = run.commit(facts, SystemTokens().token(), adoption).commit
    run.batch_done()
    return made


def test_a_storage_that_hangs_with_packs_holds_up_neither_commits_nor_the_end(
    store: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_upload, "WAIT_S", 0.02)
    monkeypatch.setattr(pack_upload, "CLOSE_S", 0.02)
    run = JobRun.open(store, "job", 8, CommitPolicy(full_every=2, path_max=6), ManualClock(), SystemTokens())
    run.take_over()
    run.choose_base(SparkProgress(0, "q", "0", None), None)
    commits = [commit(run, batch) for batch in range(16)]
    full = [made.batch for made in commits if made.is_full]
    assert full == [0, 6, 12], "without packs only the length of the path makes an entry full"
    store.gate.set()
    run.close()
    assert store.list(layout.CHAIN)[-1].name == layout.chain(commits[-1].seq)


def test_a_pack_that_hangs_is_given_up_and_the_next_ones_do_not_queue_behind_it(store: Hanging) -> None:
    """Each commit that was due waited for a pack that was not begun, even when the storage answered again."""
    store.let_through = range(5, 100)
    run = run_on(store, CommitPolicy(full_every=2, path_max=128))
    commits = [commit(run, 0), commit(run, 1)]
    assert store.has_begun.wait(60)
    for batch in range(2, 12):
        commits.append(commit(run, batch))
        run._packs.settle()
    assert store.hanging == [commits[2].seq]
    assert [made.batch for made in commits if made.is_full] == [0, 5, 7, 9, 11]
    run.close()


def test_while_a_late_pack_is_under_way_no_other_is_made_and_none_for_a_slot_that_is_past(store: Hanging) -> None:
    run = run_on(store, CommitPolicy(full_every=2, path_max=128))
    first, second = commit(run, 0), commit(run, 1)
    assert store.has_begun.wait(60)
    late = [commit(run, 2), commit(run, 3)]
    assert store.hanging == [second.seq + 1]
    upload = run._packs._late
    assert upload is not None
    store.gate.set()
    upload.future.result(60)
    late.append(commit(run, 4))
    run._packs.settle()
    full = commit(run, 5)
    run.close()
    assert [made.is_full for made in (first, second, *late, full)] == [True, False, False, False, False, True]
    assert store.slots_of_packs() == [second.seq + 1, full.seq]


def test_a_pack_that_is_late_before_it_is_put_is_not_put(store: Hanging) -> None:
    policy = CommitPolicy(full_every=2, path_max=128)
    store.let_through = range(100)
    run = run_on(store, policy)
    for batch in range(2):
        commit(run, batch)
    run.close()
    packs = store.slots_of_packs()
    store.reads_hang = True
    run = run_on(store, policy, batch=2)
    assert store.has_begun.wait(60)
    commit(run, 2)
    upload = run._packs._late
    assert upload is not None
    store.gate.set()
    assert upload.future.result(60) is None
    run.close()
    assert store.slots_of_packs() == packs


def test_packs_that_hang_are_a_few_and_then_no_commit_waits_for_one(
    store: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pack_upload, "WAIT_S", 0.02)
    monkeypatch.setattr(pack_upload, "CLOSE_S", 0.02)
    run = run_on(store, CommitPolicy(full_every=2, path_max=128))
    for batch in range(40):
        commit(run, batch)
    assert 2 <= caplog.text.count("was not stored within") <= pack_upload.HELD_MAX
    assert run._packs._threads.lost <= pack_upload.HELD_MAX
    assert len(store.hanging) <= pack_upload.HELD_MAX
    store.gate.set()
    monkeypatch.setattr(pack_upload, "WAIT_S", 60.0)
    while run._packs._threads.lost:
        store.gate.wait(0.001)
    assert commit(run, 40).is_full or commit(run, 41).is_full
    run.close()


def test_what_was_given_to_a_pack_that_no_entry_named_is_read_back() -> None:
    def refused(_view: object, _floors: object) -> NoReturn:
        raise InvalidRequestError("not now")

    store = MemoryStore()
    run = JobRun.open(store, "job", 8, CommitPolicy(full_every=4), ManualClock(), SystemTokens())
    run.take_over()
    run.choose_base(SparkProgress(0, "q", "0", None), None)
    before = [commit(run, batch) for batch in range(4)]
    assert [made.batch for made in before if made.is_full] == [0]
    run._packs.settle()
    with pytest.raises(InvalidRequestError, match="not now"):
        commit(run, 4, refused)
    commit(run, 4)
    run._packs.settle()
    full = commit(run, 5)
    run.close()
    assert full.is_full
    assert {ref.data.name.split("/")[0] + "/" for ref in full.log} == {layout.PACKS}
    assert {seq for ref in full.log for seq in range(ref.seq_first, ref.seq_last + 1)} >= {made.seq for made in before}
    assert b"first" in b"".join(bytes(read.data) for read in read_slices(store, [ref.data for ref in full.log]))


def test_a_pack_takes_up_the_small_one_before_it_and_does_without_it_if_that_is_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    run = JobRun.open(store, "job", 8, CommitPolicy(full_every=2, path_max=8), ManualClock(), SystemTokens())
    run.take_over()
    run.choose_base(SparkProgress(0, "q", "0", None), None)
    packs: list[list[str]] = []
    for batch in range(9):
        if batch == 5:
            [name] = packs[-1]
            store.put(name, store.get(name)[:-1] + b"?")
        made = commit(run, batch)
        run._packs.settle()
        if made.is_full:
            packs.append(sorted({ref.data.name for ref in made.log}))
    run.close()
    assert [len(names) for names in packs] == [0, 1, 1, 2, 3]
    assert packs[2] != packs[1]
    assert set(packs[2]) < set(packs[3]) < set(packs[4]), "the damaged one stays, and is named"
    assert caplog.text.count("a pack is not joined") == 2


def test_an_entry_that_is_too_large_without_a_pack_tells_why_there_is_none_and_waits_for_one_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It told to run the materializer, which did not help; and the next start named all segments again, without waiting
    for the pack.
    """
    store = Refusing()

    class Awaited(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            store.gate.set()
            return super().result(timeout)

    monkeypatch.setattr(attempt_threads, "Future", Awaited)
    monkeypatch.setattr(commit_plan, "ENTRY_BYTES_MAX", 3000)
    policy = CommitPolicy(full_every=2, path_max=20)
    run = run_on(store, policy)
    assert [made.batch for made in (commit(run, batch) for batch in range(20)) if made.is_full] == [0]
    for _ in range(2):
        with pytest.raises(DidNotHappenError, match="repair the storage of the log") as caught:
            commit(run, 20)
        assert "the log storage is down" in str(caught.value)
        assert isinstance(caught.value.__cause__, DidNotHappenError)
        run.close()
        run = run_on(store, policy, batch=20)
    run.close()
    store.is_down = False
    store.gate.clear()
    run = run_on(store, policy, batch=20)
    made = commit(run, 20)
    assert made.is_full
    assert {layout.slot_of(ref.data.name).slot for ref in made.log} == {made.seq}
    run.close()


def test_the_bytes_that_are_kept_for_packs_are_bounded_and_the_rest_is_read_back() -> None:
    """While packs failed, the driver kept all that was inline in up to 128 entries."""
    store = Refusing()
    store.gate.set()
    run = run_on(store, CommitPolicy(full_every=2, path_max=128, pack_bytes=30))
    made = [commit(run, batch) for batch in range(12)]
    kept = [len(blob) for _, blob in run._packs._blobs.values()]
    run._packs.settle()
    assert [one.batch for one in made if one.is_full] == [0]
    assert sum(kept) - max(kept) < 30 <= sum(kept)
    store.is_down = False
    made.append(commit(run, 12))
    run._packs.settle()
    full = commit(run, 13)
    run.close()
    assert full.is_full
    assert {layout.slot_of(ref.data.name).slot for ref in full.log} == {full.seq}
    assert {seq for ref in full.log for seq in range(ref.seq_first, ref.seq_last + 1)} >= {one.seq for one in made}
    found = [bytes(read.data) for read in read_slices(store, [ref.data for ref in full.log])]
    assert found == [b"first" * len(made), b"second" * len(made)]
