"""A log whose references fill the entry: no materializer has run for long, or it does not keep up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.jobs.chain_job import OPERATOR, ChainJob, Driver, results_of
from varvite.changelog.commit import plan as commit_plan
from varvite.changelog.commit.pack import PackHeader, plan_pack
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption, CommitPlan, adopts_now
from varvite.changelog.commit.state import CommitPolicy
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice, SnapshotFloor, Tile
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from varvite.changelog.commit.batch_result import PartitionResult
    from varvite.changelog.commit.pack import Pack

POLICY = CommitPolicy(full_every=8, path_max=12)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_plan, "ENTRY_BYTES_MAX", 6000)
    monkeypatch.setattr(commit_plan, "LARGE_LOG_BYTES", 3000)
    monkeypatch.setattr(commit_plan, "LONG_LOG", 4)


def results(driver: Driver) -> tuple[PartitionResult, ...]:
    """The first partition uploads two objects, the other one's segment is inline: so a pack is made as well."""
    slot = driver.state.slot
    uploaded = tuple(ObjectSlice(layout.segment(slot, OPERATOR, 0, "t", i), 0, 5, 1) for i in range(2))
    first, other = results_of([b"", b"y"])
    return msgspec.structs.replace(first, uploaded=uploaded), other


def pack_of(driver: Driver) -> Pack | None:
    """The pack of the next entry, if it should be full."""
    state = driver.state
    if not state.packable_bytes or not state.is_full_due(POLICY):
        return None
    data = {ref: read_slice(driver.job.store, ref.data) for ref in state.packable()}
    pack = plan_pack(state.view.segments, data, PackHeader(job_id=state.job_id, token="p", slot=state.slot))
    driver.job.store.put(pack.name, pack.body)
    return pack


def commit(driver: Driver, batch: int, adoption: Adoption = NOTHING_ADOPTED) -> CommitPlan:
    """As a run does it."""
    pack = pack_of(driver)
    return driver.commit(batch, results(driver), adoption if adopts_now(driver.state, pack) else NOTHING_ADOPTED, pack)


def stuck(job: ChainJob) -> tuple[Driver, int]:
    """A new run of a job whose log has become too long; and its next batch."""
    driver = job.driver(0)
    for batch in range(100):
        try:
            commit(driver, batch)
        except InvalidRequestError:
            return job.driver(batch), batch
    raise AssertionError


def adoption_of(driver: Driver, low: int, high: int) -> Adoption:
    """A snapshot of these key groups as of the newest final commit."""
    base = driver.state.base
    assert base is not None
    tile = Tile(operator=OPERATOR, low=low, high=high, at=base.parent, snapshot=1)
    return Adoption((tile,), (SnapshotFloor(OPERATOR, low, high, 1),))


def test_a_job_goes_on_once_a_materializer_has_run() -> None:
    """Nothing was adopted with the pack of a long log, so it failed for ever with the advice to run one."""
    driver, batch = stuck(ChainJob(POLICY))
    with pytest.raises(InvalidRequestError, match="run the materializer"):
        commit(driver, batch)
    plan = commit(driver, batch, adoption_of(driver, 0, 8))
    assert plan.commit.is_full
    assert len(plan.commit.log) == 3
    commit(driver, batch + 1)


def test_a_full_entry_is_put_off_while_the_snapshots_of_a_part_do_not_suffice() -> None:
    """One commit adopts snapshots of some ranges only."""
    job = ChainJob(POLICY)
    driver, batch = stuck(job)
    first = commit(driver, batch, small_adoption(driver, 7, 8))
    assert not first.commit.is_full
    assert "above the limit" in first.put_off
    assert len(driver.state.view.path) == POLICY.path_max, "longer than it may be otherwise"
    plan = commit(driver, batch + 1, adoption_of(driver, 0, 7))
    assert plan.commit.is_full
    assert not plan.put_off
    view = job.reader.load_line(plan.commit.link, 8).view
    assert view == driver.state.view


def small_adoption(driver: Driver, low: int, high: int) -> Adoption:
    """The same, of key groups that hold little of the log; the tile around them is cut up as after a rescaling."""
    at, tiles = driver.state.base, driver.state.view.tiles
    assert at is not None
    rest = Tile(operator=OPERATOR, low=0, high=low, at=tiles[0].at)
    return Adoption(
        (rest, Tile(operator=OPERATOR, low=low, high=high, at=at.parent, snapshot=1)),
        (SnapshotFloor(OPERATOR, low, high, 1),),
    )


def test_a_full_entry_that_is_too_large_is_tried_again_a_few_commits_later() -> None:
    """Each try costs much; and while the path may grow the job need not fail."""
    driver = ChainJob(POLICY).driver(0)
    due: list[bool] = []
    put_off: list[bool] = []
    for batch in range(100):
        due.append(driver.state.is_full_due(POLICY))
        put_off.append(bool(commit(driver, batch).put_off))
        if len(driver.state.view.path) == POLICY.path_max - 1:
            break
    first = put_off.index(True)
    assert due[first:] == put_off[first:] == [True, False, True, False]
    assert driver.state.must_be_full(POLICY)
    assert driver.state.is_full_due(POLICY)


def test_an_entry_that_is_too_large_without_any_log_has_too_many_partitions() -> None:
    """The first batch of 200 operators with 1,000 partitions said that the materializer would help; it has no log."""
    driver = ChainJob().driver(0)
    with pytest.raises(InvalidRequestError, match=r"too many for an entry; lower parallelism\.default") as caught:
        driver.plan(0, results_of([b""] * 8, tag="t" * 3_000))
    assert "materializer" not in str(caught.value)
