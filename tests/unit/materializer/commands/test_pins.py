"""`varvite pins` over a real job on local disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import World
from tests.stores.manual_clock import ManualClock
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.pins import create_pin
from varvite.materializer.commands.cli import main
from varvite.materializer.service import retention
from varvite.storage.clock import SystemClock
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_MS = 3_600_000
TOKENS = NumberedTokens("pins")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "work", LocalStore(tmp_path / "storage"))
    world.commit()
    yield world
    world.close()


def run(world: World, *arguments: str, code: int = 0) -> Any:
    storage = world.root.url
    done = CliRunner().invoke(main, ["pins", *arguments, "--storage", storage, "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else done.output


def pinned(world: World, holder: str, age_ms: int = 0) -> str:
    """Pin the newest checkpoint, `age_ms` ago."""
    clock = ManualClock(SystemClock().now_ms() - age_ms)
    return create_pin(world.reader, world.newest(), holder, clock, TOKENS).token


def test_pins_are_listed_with_what_they_keep_and_released(world: World) -> None:
    sidecar = world.sidecar()
    first = pinned(world, "a killed reader")
    for _ in range(4):
        world.commit(4, upload=True)
        sidecar.fold()
    second = pinned(world, "a reader")
    for _ in range(4):
        world.commit(4, upload=True)
        sidecar.fold()
    listed = run(world, "list", "job")
    assert [(line["pin"], line["holder"]) for line in listed] == [(first, "a killed reader"), (second, "a reader")]
    assert all(line["entries"] > 0 for line in listed)
    collector = Collector(world.reader, world.clock, TOKENS)
    collector.collect()
    assert run(world, "release", "job", first, "--dry-run") == listed[:1]
    assert not collector.collect().deleted
    for pin, line in zip((first, second), listed, strict=True):
        assert run(world, "release", "job", pin) == [line]
        report = collector.collect()
        assert 0 < len(report.entries) <= line["entries"]  # fences stay
        assert report.segments
    assert run(world, "list", "job") == []


def test_old_pins_are_released_but_not_those_of_the_retention(world: World) -> None:
    old = pinned(world, "a killed reader", 2 * HOUR_MS)
    kept = [pinned(world, retention.HOLDER, 9 * HOUR_MS), pinned(world, "a reader")]
    assert [line["pin"] for line in run(world, "release", "job", "--older-than", "1h")] == [old]
    assert sorted(line["pin"] for line in run(world, "list", "job")) == sorted(kept)


@pytest.mark.parametrize("arguments", [(), ("a", "--older-than", "1h")])
def test_it_must_be_said_which(world: World, arguments: tuple[str, ...]) -> None:
    assert "say which pins" in run(world, "release", "job", *arguments, code=1)


def test_an_unknown_pin_releases_nothing(world: World) -> None:
    known = pinned(world, "a reader")
    assert "there is no pin other; see `varvite pins list`" in run(world, "release", "job", known, "other", code=1)
    assert [line["pin"] for line in run(world, "list", "job")] == [known]


def test_a_damaged_pin_is_listed_and_can_be_released(world: World) -> None:
    whole, damaged = pinned(world, "a reader"), "0f" * 16
    world.store.put(layout.pin(damaged), b"damaged")
    collector = Collector(world.reader, world.clock, TOKENS)
    with pytest.raises(CorruptDataError, match=f"varvite pins release JOB {damaged} --damaged"):
        collector.collect()
    done = CliRunner().invoke(main, ["pins", "list", "job", "--storage", world.root.url, "--json"])
    assert done.exit_code == 1
    assert [(x["pin"], x["error"] is None) for x in map(json.loads, done.stdout.splitlines())] == [
        (whole, True),
        (damaged, False),
    ]
    assert "--damaged" in run(world, "release", "job", damaged, code=1)
    assert run(world, "release", "job", "--older-than", "1d") == []
    assert [line["pin"] for line in run(world, "release", "job", damaged, "--damaged", "--dry-run")] == [damaged]
    assert [line["pin"] for line in run(world, "release", "job", damaged, "--damaged")] == [damaged]
    assert [line["pin"] for line in run(world, "list", "job")] == [whole]
    collector.collect()


def test_swapped_pins_are_named_and_nothing_is_deleted_meanwhile(world: World) -> None:
    """Each was taken for the other one: `release` of the old one released the new one's protection."""
    names = [layout.pin(pinned(world, "a reader"))]
    world.commit()
    names.append(layout.pin(pinned(world, "another")))
    first, second = (world.store.get(name) for name in names)
    world.store.put(names[0], second)
    world.store.put(names[1], first)
    done = CliRunner().invoke(main, ["pins", "list", "job", "--storage", world.root.url, "--json"])
    errors = [json.loads(line)["error"] for line in done.stdout.splitlines()]
    assert all("copied or moved here" in error for error in errors)
    assert len(errors) == 2
    with pytest.raises(CorruptDataError, match="copied or moved here"):
        Collector(world.reader, world.clock, TOKENS).collect()
