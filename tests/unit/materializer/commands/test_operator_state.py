"""`varvite describe`, `state` and `diff`, and `open_state`, of non-keyed state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tests.jobs.materializer_world import World
from varvite import open_state
from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.operator_state.image import Image, encode_image
from varvite.changelog.types.factory import Types
from varvite.materializer.commands.cli import main
from varvite.materializer.savepoints.operator_tables import write_tables
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore

parquet: Any = pyarrow.parquet
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


def copied(storage: str) -> Path:
    """Make the canonical savepoint `copy`; where files of savepoints are."""
    create = ["savepoint", "create", "job", "copy", "--format", "canonical", "--storage", storage]
    assert CliRunner().invoke(main, create).exit_code == 0
    return Path(storage) / "job" / layout.SAVEPOINT_FILES


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


def test_a_canonical_savepoint_has_the_rows_as_parquet_which_other_tools_read(storage: str) -> None:
    [operator] = copied(storage).glob("*/flights")
    found = {path.name: parquet.read_table(path).to_pylist() for path in operator.glob("*.parquet")}
    tables = {t.name: t for t in open_state(storage, "job").operator_states()}
    assert found == {f"{name}.{table.kind}.parquet": table.to_arrow().to_pylist() for name, table in tables.items()}
    assert found["waiting.operator-list.parquet"] == [
        {"partition": 0, "position": 0, "value": {"k": "a", "v": 2}},
        {"partition": 1, "position": 0, "value": {"k": "b", "v": None}},
        {"partition": 1, "position": 1, "value": {"k": "c", "v": 3}},
    ]
    assert [row["key"] for row in found["rules.broadcast.parquet"]] == ["z", "new"] * 2
    assert len(found) == 5
    [described] = run(storage, "savepoint", "describe", "job", "copy")
    states = {state["state"]: state for state in described["states"]}
    assert (states["rules"]["kind"], states["rules"]["rows"], len(states["rules"]["files"])) == ("broadcast", 4, 1)
    assert states["rules"]["files"][0] in described["objects"]
    assert sum("/image." in name for name in described["objects"]) == 2


def test_a_damaged_table_of_a_savepoint_is_found_and_deletion_takes_all_files(storage: str) -> None:
    files = copied(storage)
    [path] = files.glob("*/flights/rules.broadcast.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\x00")
    done = CliRunner().invoke(main, ["verify", "job", "--storage", storage])
    assert done.exit_code != 0
    assert path.name in done.output.replace("\n", "")
    path.write_bytes(whole)
    assert CliRunner().invoke(main, ["verify", "job", "--storage", storage]).exit_code == 0
    assert CliRunner().invoke(main, ["savepoint", "delete", "job", "copy", "--storage", storage]).exit_code == 0
    assert [found for found in files.rglob("*") if found.is_file()] == []


def test_values_of_several_versions_of_a_type_are_text_in_the_table(tmp_path: Path) -> None:
    """One partition has not been written since the type changed; its columns and the others' must be the same."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path)))
    images = []
    for kind, element in ((Types.LONG(), 7), (Types.STRING(), "seven")):
        backend = OperatorStateBackend(world.job.uid)
        backend.get_list_state(ListStateDescriptor("waiting", kind)).update([element])
        images.append(encode_image(Image(world.reader.job_id, world.job.uid, backend.sections())))
    world.commit(images=images)
    refs = world.reader.load_line(world.newest().link, world.newest().max_parallelism).view.images
    files = write_tables(world.job.uid, refs, "token", world.store, tmp_path)
    written = next(files)
    assert parquet.read_table(written.path).column("value").to_pylist() == ["7", '"seven"']
    assert written.record.rows == 2
    assert list(files) == []
    world.close()


def test_the_tables_are_read_in_python(storage: str) -> None:
    tables = {table.name: table for table in open_state(storage, "job", "batch:0").operator_states()}
    assert tables["rules"].to_arrow().column("key").to_pylist() == ["z", "a", "z", "a"]
    assert tables["raw-operator"].to_arrow().column("value").to_pylist() == [b"\x00stream"] * 2
