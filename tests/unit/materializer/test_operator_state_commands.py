"""`varve describe`, `state` and `diff`, and `open_state`, of non-keyed state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.materializer_world import World
from varve import open_state
from varve.changelog.descriptors import ListStateDescriptor, MapStateDescriptor
from varve.changelog.operator_image import Image, encode_image
from varve.changelog.operator_state_backend import OperatorStateBackend
from varve.changelog.types import Types
from varve.materializer.cli import main
from varve.storage.local_store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

WAITING = ListStateDescriptor("waiting", Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()]))
OFFSETS = ListStateDescriptor("offsets", Types.LIST(Types.LONG()))
RULES = MapStateDescriptor("rules", Types.STRING(), Types.DOUBLE())


def image(world: World, waiting: list[Any], rules: dict[str, float | None]) -> bytes:
    backend = OperatorStateBackend(world.job.uid)
    backend.get_list_state(WAITING).update(waiting)
    backend.get_union_list_state(OFFSETS).update([[0, 10]])
    backend.get_broadcast_state(RULES).put_all(rules)
    backend.set_raw_streams([b"\x00stream"], [(3, b"group")])
    return encode_image(Image(world.reader.job_id, world.job.uid, backend.sections()))


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """Batch 0 and 1, of which the second changes the list of partition 0 and the rules."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path)))
    rules: dict[str, float | None] = {"z": 0.5, "a": None}
    world.commit(images=[image(world, [("a", 1)], rules), image(world, [("b", None), ("c", 3)], rules)])
    rules = {"z": 0.5, "new": 1.0}
    world.commit(images=[image(world, [("a", 2)], rules), image(world, [("b", None), ("c", 3)], rules)])
    world.close()
    return str(tmp_path)


def run(storage: str, *arguments: str) -> list[Any]:
    done = CliRunner().invoke(main, [*arguments, "--storage", storage, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_describe_lists_the_states_with_elements_and_bytes(storage: str) -> None:
    found = {line["state"]: line for line in run(storage, "describe", "job")}
    kinds = {name: (line["kind"], line["elements"]) for name, line in found.items() if line["elements"] is not None}
    assert kinds == {
        "waiting": ("operator-list", 3), "offsets": ("operator-union-list", 2), "rules": ("broadcast", 4),
        "raw-operator": ("raw-operator", 2), "raw-keyed": ("raw-keyed", 2),
    }  # fmt: skip
    assert all(found[name]["size_bytes"] > 0 for name in kinds)
    assert (found["rules"]["map_key_type"], found["rules"]["value_type"]) == ("string", "double")
    assert "total" in found


def test_state_shows_the_rows(storage: str) -> None:
    assert run(storage, "state", "job", "waiting") == [
        {"partition": 0, "position": 0, "value": {"k": "a", "v": 2}},
        {"partition": 1, "position": 0, "value": {"k": "b", "v": None}},
        {"partition": 1, "position": 1, "value": {"k": "c", "v": 3}},
    ]
    assert run(storage, "state", "job", "rules", "--key", "z") == [
        {"partition": p, "key": "z", "value": 0.5} for p in (0, 1)
    ]
    assert [row["value"] for row in run(storage, "state", "job", "offsets")] == [[0, 10], [0, 10]]
    assert [row["key_group"] for row in run(storage, "state", "job", "raw-keyed")] == [3, 3]
    done = CliRunner().invoke(main, ["state", "job", "rules", "--key-groups", "1", "--storage", storage])
    assert done.exit_code == 1
    assert "partitions, not key groups" in done.output


def test_diff_compares_entries_and_partitions(storage: str) -> None:
    rows = run(storage, "diff", "job", "--from", "batch:0", "--limit", "0")
    found = {(r["state"], r["change"], r["key"]): (r["before"], r["after"]) for r in rows if r["key_group"] is None}
    assert found == {
        ("rules", "removed", "a"): (None, None),
        ("rules", "added", "new"): (None, 1.0),
        ("waiting", "changed", "partition 0"): ([{"k": "a", "v": 1}], [{"k": "a", "v": 2}]),
    }
    counts = run(storage, "diff", "job", "--from", "batch:0", "--state", "rules", "--count")
    assert counts == [{"operator": "flights", "state": "rules", "added": 1, "changed": 0, "removed": 1}]
    assert len(run(storage, "diff", "job", "--from", "batch:0", "--state", "waiting")) == 1


def test_the_tables_are_read_in_python(storage: str) -> None:
    tables = {table.name: table for table in open_state(storage, "job", "batch:0").operator_states()}
    assert tables["rules"].to_arrow().column("key").to_pylist() == ["z", "a", "z", "a"]
    assert tables["raw-operator"].to_arrow().column("value").to_pylist() == [b"\x00stream"] * 2
