"""`varvite describe`, `state` and `diff` over a real job on local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.jobs import committing_job, state_model
from tests.jobs.committing_job import CommittingJob
from tests.jobs.state_model import GONE, KEY_GROUPS, BatchChanges, key_group
from tests.stores.manual_clock import ManualClock
from varvite.changelog.commit.batch_result import BatchFacts
from varvite.changelog.reading.key_hash import key_group_of_text
from varvite.materializer.commands.cli import main
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = BatchChanges(
    totals={"a": 1, "b": 2, "c": 3},
    by_name={"a": (False, {"x": 1, "y": None})},
    events={"a": (False, ["one", "two"]), "d": (False, ["[red]"])},
    alarms={("a", 1, "x"): True, ("a", 5, None): True},
)
SECOND = BatchChanges(
    totals={"a": 10, "b": GONE, "new": 4},
    by_name={"a": (False, {"x": GONE, "z": 3})},
    events={"a": (False, ["three"])},
    alarms={("a", 5, None): False},
)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[CommittingJob]:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    job.commit(FIRST)
    job.commit(SECOND)
    yield job
    job.close()


@pytest.fixture
def storage(job: CommittingJob, tmp_path: Path) -> str:
    return str(tmp_path)


def run(storage: str, *arguments: str, code: int = 0) -> list[Any]:
    done = CliRunner().invoke(main, [*arguments, "--storage", storage, "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_describe_shows_operators_and_states_with_their_types(storage: str) -> None:
    lines = run(storage, "describe", "flights", "--checkpoint", "batch:0")
    assert [line["state"] for line in lines] == ["total", "by_name", "events", "alarms"]
    first, by_name, *_ = lines
    assert (first["seq"], first["batch"], first["operator"]) == (2, 0, "flights")
    assert (first["kind"], first["key_type"], first["value_type"]) == ("value", "string", "long")
    assert (by_name["map_key_type"], by_name["log_segments"], by_name["bases"]) == ("string", 2, 0)


def test_state_shows_rows_and_filters_them(storage: str) -> None:
    rows = run(storage, "state", "flights", "total")
    assert {row["key"]: row["value"] for row in rows} == {"a": 10, "c": 3, "new": 4}
    assert {row["key_group"] for row in rows} == {key_group(key) for key in ("a", "c", "new")}
    assert len(run(storage, "state", "flights", "total", "--limit", "2")) == 2
    assert len(run(storage, "state", "flights", "total", "--limit", "0")) == 3
    assert run(storage, "state", "flights", "total", "--key", "c") == [
        {"key_group": key_group("c"), "key": "c", "value": 3}
    ]
    group = key_group("a")
    found = run(storage, "state", "flights", "total", "--key-groups", str(group))
    assert "a" in {row["key"] for row in found}
    assert {row["key_group"] for row in found} == {group}
    older = run(storage, "state", "flights", "events", "--checkpoint", "batch:0", "--key", "a")
    assert [(row["position"], row["value"]) for row in older] == [(0, "one"), (1, "two")]


def test_a_storage_that_takes_no_pin_is_read_without_one(storage: str) -> None:
    (Path(storage) / "flights" / layout.PINS.rstrip("/")).write_text("where a directory would be")
    done = CliRunner().invoke(main, ["state", "flights", "total", "--storage", storage])
    assert (done.exit_code, "--no-pin" in done.output) == (1, True), done.output
    assert len(run(storage, "state", "flights", "total", "--no-pin")) == 3


def test_only_the_key_group_of_a_key_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of the other partition are damaged; a key that is nowhere is looked for everywhere."""

    def spark_group(key: str) -> int:
        group = key_group_of_text("string", key, KEY_GROUPS)
        assert group is not None
        return group

    for module in (state_model, committing_job):
        monkeypatch.setattr(module, "key_group", spark_group)
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    job.commit(BatchChanges(totals={f"k{i}": i for i in range(20)}), upload=True)
    edge = job.ranges[1][0]
    low = next(f"k{i}" for i in range(20) if spark_group(f"k{i}") < edge)
    for meta in job.store.list(layout.SEGMENTS):
        if "/00001-" in meta.name:
            job.store.put(meta.name, b"damaged")
    job.close()
    [row] = run(str(tmp_path), "state", "flights", "total", "--key", low)
    assert (row["key"], row["key_group"]) == (low, spark_group(low))
    run(str(tmp_path), "state", "flights", "total", "--key", "nobody", code=1)


def test_counts_and_sizes_per_key_group(job: CommittingJob, storage: str) -> None:
    groups = run(storage, "state", "flights", "--groups")
    assert {(g["state"], g["key_group"]): g["rows"] for g in groups if g["state"] == "events"} == {
        ("events", key_group("a")): 3,
        ("events", key_group("d")): 1,
    }
    counts = {line["state"]: line for line in run(storage, "state", "flights", "--count")}
    assert {name: (line["keys"], line["rows"]) for name, line in counts.items()} == {
        "total": (3, 3), "by_name": (1, 2), "events": (2, 4), "alarms": (None, 1)
    }  # fmt: skip
    for name, line in counts.items():
        own = [g for g in groups if g["state"] == name]
        assert line["size_bytes"] == sum(g["size_bytes"] for g in own)
        assert line["largest_group_bytes"] == max(g["size_bytes"] for g in own)
        assert line["key_groups"] == len(own)
    assert counts["by_name"]["skew"] == 8, "all bytes are in one of eight key groups"
    assert [line["state"] for line in run(storage, "state", "flights", "alarms", "--count")] == ["alarms"]


def test_diff_tells_added_changed_and_removed_rows(storage: str) -> None:
    rows = run(storage, "diff", "flights", "--from", "batch:0")
    found = {(r["state"], r["change"], r["key"], r["map_key"]): (r["before"], r["after"]) for r in rows}
    assert found == {
        ("total", "changed", "a", None): (1, 10),
        ("total", "removed", "b", None): (2, None),
        ("total", "added", "new", None): (None, 4),
        ("by_name", "removed", "a", "x"): (1, None),
        ("by_name", "added", "a", "z"): (None, 3),
        ("events", "changed", "a", None): (["one", "two"], ["one", "two", "three"]),
        ("alarms", "removed", "a", None): ({"namespace": None, "time_ms": 5}, None),
    }
    assert len(run(storage, "diff", "flights", "--from", "batch:0", "--limit", "2")) == 2
    counts = run(storage, "diff", "flights", "--from", "batch:0", "--count", "--state", "total")
    assert counts == [{"operator": "flights", "state": "total", "added": 1, "changed": 1, "removed": 1}]
    assert run(storage, "diff", "flights", "--from", "batch:1", "--to", "3") == []


def test_an_operator_that_only_one_checkpoint_has_is_added_or_removed(
    job: CommittingJob, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job.run is not None
    commit, job.uid = job.run.commit, "renamed"

    def dropping(facts: BatchFacts, *others: Any) -> Any:
        return commit(msgspec.structs.replace(facts, dropped=frozenset({"flights"})), *others)

    with monkeypatch.context() as patch:
        patch.setattr(job.run, "commit", dropping)
        job.commit(BatchChanges(totals={"z": 1}))
    rows = run(storage, "diff", "flights", "--from", "batch:1", "--state", "total")
    found = {(row["operator"], row["change"], row["key"]) for row in rows}
    assert found == {*(("flights", "removed", key) for key in ("a", "c", "new")), ("renamed", "added", "z")}


def test_tables_show_the_same_and_nothing_stays_pinned(job: CommittingJob, storage: str) -> None:
    for arguments, told in (
        (["describe", "flights"], "by_name"),
        (["state", "flights", "events"], "[red]"),
        (["state", "flights", "--count"], "skew"),
        (["state", "flights", "--groups"], "key group"),
        (["diff", "flights", "--from", "2"], "removed"),
        (["diff", "flights", "--from", "3"], "nothing found"),
        (["state", "flights", "total", "--key", "nobody", "--no-pin"], "nothing found"),
    ):
        done = CliRunner().invoke(main, [*arguments, "--storage", storage])
        assert done.exit_code == 0, done.output
        assert told in done.output
    assert list(job.store.list(layout.PINS)) == []


def test_what_is_wrong_is_said(storage: str) -> None:
    for arguments, told in (
        (["state", "flights"], "not just one state"),
        (["state", "flights", "nothing", "--count"], "no state 'nothing'"),
        (["state", "flights", "total", "--key-groups", "a-b"], "--key-groups takes a number"),
        (["state", "flights", "total", "--key-groups", "6-9"], "no key groups of the job"),
        (["describe", "flights", "--checkpoint", "9"], "no checkpoint '9'"),
        (["diff", "flights", "--from", "2", "--state", "nothing"], "neither checkpoint has a state"),
        (["diff", "flights", "--from", "2", "--operator", "nobody"], "neither checkpoint has an operator"),
        (["describe", "nobody"], "no job 'nobody'"),
    ):
        done = CliRunner().invoke(main, [*arguments, "--storage", storage])
        assert done.exit_code == 1
        assert told in done.output
