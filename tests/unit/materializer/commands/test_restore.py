"""`varvite restore` over a real job on local disk, with a checkpoint location as Spark writes it."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import CommittingJob, random_batch
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.state import CommitPolicy
from varvite.materializer.commands.cli import main
from varvite.materializer.restore.spark_location import read_location
from varvite.storage.errors import GapError, LineageError, RewindError
from varvite.storage.format import layout
from varvite.storage.job.record import read_job
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varvite.storage.format.records import Commit

BATCHES = 7


class Spark:
    """A checkpoint location whose batches are those of a `CommittingJob`."""

    def __init__(self, directory: Path, query: str = "query") -> None:
        self.directory = directory
        self.query = query

    def write(self, batches: int, *, planned: int = 0) -> None:
        """So many batches are acknowledged, and so many more are planned."""
        (self.directory / "metadata").parent.mkdir(parents=True, exist_ok=True)
        (self.directory / "metadata").write_text(json.dumps({"id": self.query}))
        for n in range(batches + planned):
            self._file(f"offsets/{n}", f'v1\n{{"batchWatermarkMs":0}}\noffsets {n}')
            if n < batches:
                self._file(f"commits/{n}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _file(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_text("checksum")

    def progress(self) -> SparkProgress:
        """State that the next run finds."""
        location = read_location(LocalStore(str(self.directory)))
        batch = max(location.acknowledged, default=-1) + 1
        self._file(f"offsets/{batch}", f'v1\n{{"batchWatermarkMs":0}}\noffsets {batch}')
        hashes = read_location(LocalStore(str(self.directory))).hashes
        return SparkProgress(batch, self.query, hashes[batch], hashes.get(batch - 1))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[CommittingJob]:
    """A job after seven batches, 0 to 6, at seqs 2 to 8."""
    job = CommittingJob(
        PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights",
        policy=CommitPolicy(retained=5),
    )  # fmt: skip
    job.start()
    rng = random.Random(1)
    for _ in range(BATCHES):
        job.commit(random_batch(rng))
    job.close()
    yield job
    job.close()


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path / "spark")


def run(job: CommittingJob, *arguments: str, code: int = 0) -> dict[str, Any]:
    root = job.store.url.removeprefix("file://").rsplit("/", 1)[0]
    done = CliRunner().invoke(main, ["restore", "flights", *arguments, "--storage", root, "--json"])
    assert done.exit_code == code, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines[0] if lines else {"error": done.output}


def start(job: CommittingJob, spark: Spark) -> Commit | None:
    """The next run's base, for what the location says."""
    job.close()
    progress = spark.progress()
    job.batch, job.query = progress.batch, progress.query_id
    job.start()
    assert job.run is not None
    return job.run.state.base


def go_on(job: CommittingJob, spark: Spark) -> None:
    """Two more batches and an ordinary restart."""
    for _ in range(2):
        job.commit(random_batch(random.Random(2)))
    spark.write(job.batch)
    newest = start(job, spark)
    assert newest is not None
    assert newest.batch == job.batch - 1


def test_a_location_that_is_ahead_is_set_back_to_the_state(job: CommittingJob, spark: Spark) -> None:
    spark.write(BATCHES)
    job.store.delete([layout.chain(7), layout.chain(8)])
    with pytest.raises(GapError):
        start(job, spark)
    line = run(job, "--spark-checkpoint", str(spark.directory))
    assert (line["seq"], line["batch"]) == (6, 4)
    assert {"commits/5", "offsets/5", "commits/.6.crc", "offsets/.6.crc"} <= set(line["forgotten"])
    base = start(job, spark)
    assert base is not None
    assert base.seq == 6
    go_on(job, spark)
    [moved] = (spark.directory / "_varvite").iterdir()
    assert (moved / "offsets" / "6").read_text().endswith("offsets 6")


def test_a_location_that_is_behind_gets_the_state_that_it_had(job: CommittingJob, spark: Spark) -> None:
    spark.write(BATCHES - 3)
    with pytest.raises(RewindError):
        start(job, spark)
    line = run(job, "--spark-checkpoint", str(spark.directory))
    assert (line["seq"], line["batch"]) == (5, 3)
    for _ in range(2):
        base = start(job, spark)
        assert base is not None
        assert base.seq == 5, "the choice holds until a batch has followed"
    go_on(job, spark)


def test_a_location_that_is_lost_is_replaced_by_a_new_one(job: CommittingJob, spark: Spark) -> None:
    fresh = Spark(spark.directory.with_name("fresh"), "fresh")
    fresh.write(0)
    with pytest.raises(LineageError):
        start(job, fresh)
    line = run(job, "--spark-checkpoint", str(fresh.directory))
    assert (line["seq"], line["forgotten"]) == (8, [])
    assert "batch 0" in line["next_start"]
    base = start(job, fresh)
    assert base is not None
    assert base.seq == 8
    go_on(job, fresh)


def test_what_fits_is_left_as_it_is(job: CommittingJob, spark: Spark) -> None:
    spark.write(BATCHES, planned=1)
    line = run(job, "--spark-checkpoint", str(spark.directory))
    assert (line["seq"], line["forgotten"]) == (8, [])
    go_on_from = start(job, spark)
    assert go_on_from is not None
    assert go_on_from.seq == 8


@pytest.mark.parametrize("choice", [("--batch", "4"), ("--checkpoint", "6")])
def test_any_retained_checkpoint_can_be_chosen(job: CommittingJob, spark: Spark, choice: tuple[str, str]) -> None:
    spark.write(BATCHES)
    dry = run(job, *choice, "--spark-checkpoint", str(spark.directory), "--dry-run")
    assert (dry["seq"], dry["batch"], dry["forgotten"]) == (6, 4, [])
    assert run(job, *choice, "--spark-checkpoint", str(spark.directory))["seq"] == 6
    base = start(job, spark)
    assert base is not None
    assert base.seq == 6
    go_on(job, spark)


def test_a_savepoint_can_be_chosen(job: CommittingJob, spark: Spark) -> None:
    root = job.store.url.removeprefix("file://").rsplit("/", 1)[0]
    made = CliRunner().invoke(
        main, ["savepoint", "create", "flights", "old", "--checkpoint", "5", "--storage", root, "--json"]
    )
    model = job.models[next(link for link in job.models if link.seq == 5)]
    assert made.exit_code == 0, made.output
    spark.write(BATCHES)
    assert start(job, spark)
    for _ in range(4):
        job.commit(random_batch(random.Random(3)))
    spark.write(job.batch)
    job.close()
    line = run(job, "--savepoint", "old", "--spark-checkpoint", str(spark.directory))
    assert line["batch"] == 3
    job.models.update({link: model for link in _links(job) if link.seq == line["seq"]})
    base = start(job, spark)
    assert base is not None
    assert (base.seq, base.batch) == (line["seq"], 3)
    go_on(job, spark)


def _links(job: CommittingJob) -> list[Any]:
    reader = ChainReader(job.store, read_job(job.store).job_id)
    return [reader.read(seq).entry.link for seq in reader.list_seqs()]


def test_a_choice_can_be_changed_and_taken_back(job: CommittingJob, spark: Spark) -> None:
    run(job, "--batch", "3")
    run(job, "--batch", "5")
    fresh = Spark(spark.directory.with_name("fresh"), "fresh")
    fresh.write(0)
    base = start(job, fresh)
    assert base is not None
    assert base.batch == 5
    job.close()
    run(job, "--cancel")
    with pytest.raises(LineageError):
        start(job, fresh)


def test_what_does_not_fit_is_refused_and_says_why(job: CommittingJob, spark: Spark) -> None:
    spark.write(BATCHES)
    before = job.store.list("")
    for arguments, why in (
        (["--checkpoint", "99"], "complete are: 8 (batch 6), 7 (batch 5)"),
        (["--batch", "99"], "complete are"),
        (["--batch", "4", "--checkpoint", "5"], "one of"),
        (["--savepoint", "nothing"], "no savepoint"),
    ):
        assert why in run(job, *arguments, code=1)["error"]
    location = ["--spark-checkpoint", str(spark.directory)]
    other = Spark(spark.directory.with_name("other"), "other")
    other.write(BATCHES)
    assert "of query" in run(job, "--spark-checkpoint", str(other.directory), code=1)["error"]
    (spark.directory / "commits" / "6").unlink()
    assert "acknowledged" in run(job, "--batch", "6", *location, code=1)["error"]
    (spark.directory / "offsets" / "5").write_text('v1\n{"batchWatermarkMs":0}\nother offsets')
    assert "other input" in run(job, "--batch", "5", *location, code=1)["error"]
    shutil.rmtree(spark.directory / "offsets")
    spark._file("offsets/20", 'v1\n{"batchWatermarkMs":0}\noffsets 20')
    assert "has no offsets of batch 6" in run(job, *location, code=1)["error"]
    assert job.store.list("") == before


def test_a_job_without_a_checkpoint_cannot_be_restored(tmp_path: Path) -> None:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    job.close()
    assert "no checkpoint" in run(job, code=1)["error"]


def test_batch_0_is_a_choice(job: CommittingJob) -> None:
    before = job.store.list("")
    for other in (["--savepoint", "x"], ["--cancel"], ["--checkpoint", "6"]):
        assert "give one of" in run(job, "--batch", "0", *other, code=1)["error"]
    assert job.store.list("") == before


def test_a_choice_is_shown_and_taking_it_back_tells_what_it_was(job: CommittingJob) -> None:
    root = job.store.url.removeprefix("file://").rsplit("/", 1)[0]

    def shown() -> tuple[Any, Any, Any]:
        [line] = map(json.loads, CliRunner().invoke(main, ["jobs", "--storage", root, "--json"]).stdout.splitlines())
        return line["seq"], line["chosen_seq"], line["chosen_batch"]

    assert shown() == (8, None, None)
    run(job, "--batch", "5")
    assert shown() == (8, 7, 5)
    assert "chosen seq" in CliRunner().invoke(main, ["jobs", "--storage", root]).output
    before = job.store.list("")
    assert run(job, "--cancel", "--dry-run") == {"job": "flights", "dry_run": True, "cancelled_seq": 7}
    assert job.store.list("") == before
    assert run(job, "--cancel")["cancelled_seq"] == 7
    assert shown() == (8, None, None)
    before = job.store.list("")
    assert run(job, "--cancel")["cancelled_seq"] is None
    told = CliRunner().invoke(main, ["restore", "flights", "--cancel", "--storage", root]).output
    assert "no checkpoint was chosen" in told
    assert job.store.list("") == before, "there was nothing to take back, so no run is fenced"


def test_a_location_that_is_not_there_is_only_taken_for_new_if_that_is_said(job: CommittingJob, spark: Spark) -> None:
    before = job.store.list("")
    location = ["--spark-checkpoint", str(spark.directory)]
    assert "--new-location" in run(job, *location, code=1)["error"]
    assert job.store.list("") == before
    assert run(job, *location, "--new-location")["seq"] == 8


@pytest.mark.parametrize("damaged", [2, 8])
def test_a_damaged_checkpoint_is_no_hindrance_to_going_back_to_a_newer_one(
    job: CommittingJob, spark: Spark, damaged: int
) -> None:
    """Any that still lay in the chain was one, whether it was complete (as 8 is, and 2 is not) or long of no use."""
    job.policy = CommitPolicy(retained=5, full_every=1)
    job.start()
    for _ in range(3):
        job.commit(random_batch(random.Random(3)), upload=True)
    job.close()
    spark.write(BATCHES + 3)
    damage(job, damaged)
    location = ["--spark-checkpoint", str(spark.directory)]
    for choice in (["--checkpoint", "11"], ["--batch", "8"], ["--checkpoint", "11", *location]):
        assert run(job, *choice, "--dry-run")["seq"] == 11
    assert run(job, *location, "--dry-run")["seq"] == 12
    assert run(job, "--checkpoint", "11", *location)["seq"] == 11
    base = start(job, spark)
    assert base is not None
    assert base.seq == 11


@pytest.mark.parametrize("seq", ["4", "6"])
def test_what_needs_a_damaged_checkpoint_or_may_be_behind_it_is_refused_with_its_name(
    job: CommittingJob, seq: str
) -> None:
    damage(job, 5)
    before = job.store.list(layout.CHAIN)
    assert layout.chain(5) in run(job, "--checkpoint", seq, code=1)["error"]
    assert job.store.list(layout.CHAIN) == before


def damage(job: CommittingJob, seq: int) -> None:
    """The entry of this seq is not what was written."""
    name = layout.chain(seq)
    job.store.put(name, job.store.get(name)[:-1] + b"x")
