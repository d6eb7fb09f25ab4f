"""The versions of a state's schema: which is next, which belong together, and how values of each are read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from varvite.changelog.schema import history as schema_history
from varvite.changelog.schema.history import (
    change,
    first_version,
    migrating_reader,
    newer,
    newest_of,
    stored_conversion,
    wire_reader,
)
from varvite.changelog.types.text import parse_type_string
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format.records import StateSchema, ValueVersion

ROW = "1:row<a:int>"
WIDE = "1:row<a:int,b:string>"


def state(value_type: str, **more: Any) -> StateSchema:
    return StateSchema(name="orders", kind="value", value_type=value_type, **more)


def evolved(*types: str, defaults: dict[str, bytes] | None = None) -> StateSchema:
    """A state after these declarations."""
    schema = state(types[0])
    for kind in types[1:]:
        schema = change(schema, state(kind), defaults or {}, "op", migrates=False).schema
    return schema


def read(schema: StateSchema, version: int, kind: str, value: Any) -> Any:
    """A value of an older version as the current one has it, read both ways."""
    old, new = parse_type_string(kind), parse_type_string(schema.value_type)
    stored = old.freeze(value)
    convert = stored_conversion(schema, version)
    by_store = stored if convert is None else convert(stored)
    assert wire_reader(schema, version % 128)(old.to_wire(stored)) == by_store
    return new.thaw(by_store)


def test_each_change_is_a_version_that_knows_the_earlier_ones() -> None:
    schema = evolved(ROW, WIDE, "1:row<b:string>", defaults={"b": b"\xa1x"})
    assert schema == state(
        "1:row<b:string>",
        version=2,
        earlier=(ValueVersion(value_type=ROW), ValueVersion(value_type=WIDE, defaults={"b": b"\xa1x"})),
    )
    assert first_version(schema) == 0


def test_the_same_type_is_the_same_version_whatever_else_changes() -> None:
    stored = evolved(ROW, WIDE, defaults={"b": b"\xa1x"})
    again = change(stored, state(WIDE, ttl={"ms": 5}), {"b": b"\xa1y"}, "op", migrates=True)
    assert again == (msgspec.structs.replace(stored, ttl={"ms": 5}), False, False)
    assert change(stored, state(WIDE), {}, "op", migrates=False).schema is stored


def test_a_value_takes_every_step_since_it_was_written() -> None:
    """A dropped field does not come back with its name; an added one keeps the default of then."""
    schema = evolved("1:row<a:int,b:int>", "1:row<a:int>", "1:row<a:long,b:int>")
    assert tuple(read(schema, 0, "1:row<a:int,b:int>", (1, 2))) == (1, None)
    assert tuple(read(schema, 1, ROW, (3,))) == (3, None)
    first = change(state(ROW), state(WIDE), {"b": b"\xa3old"}, "op", migrates=False).schema
    second = change(first, state(WIDE.replace("int", "long")), {"b": b"\xa3new"}, "op", migrates=False).schema
    assert tuple(read(second, 0, ROW, (1,))) == (1, "old")
    assert tuple(read(second, 1, WIDE, (1, None))) == (1, None)


def test_a_value_whose_bytes_stay_is_not_touched() -> None:
    schema = evolved("1:row<a:int>", "1:row<a:long>")
    assert stored_conversion(schema, 0) is None
    assert tuple(wire_reader(schema, 0)(b"\x91\x05")) == (5,)


def test_bytes_that_are_no_value_of_the_old_version_are_damage() -> None:
    schema = evolved(ROW, WIDE)
    with pytest.raises(CorruptDataError, match="row<a:int>"):
        wire_reader(schema, 0)(b"\x91\xa1x")


@pytest.mark.parametrize(
    ("wanted", "reason", "can_migrate"),
    [
        (state("1:row<a:string>"), "field a: int cannot become string", True),
        (state("1:long"), "cannot become long", True),
        (StateSchema(name="orders", kind="list", value_type=ROW), "the kind of a state cannot change", False),
        (state(ROW, map_key_type="1:int"), "the type of map keys cannot change", False),
        (state(ROW, namespace_type="1:int"), "the type of namespaces cannot change", False),
    ],
)
def test_an_incompatible_change_names_everything_and_the_ways_out(
    wanted: StateSchema, reason: str, *, can_migrate: bool
) -> None:
    for migrates in (False, True) if not can_migrate else (False,):
        with pytest.raises(IncompatibleError) as caught:
            change(state(ROW), wanted, {}, "counter", migrates=migrates)
        text = str(caught.value)
        for part in ("'orders'", f"value of {ROW}", schema_history.words(wanted), reason, "another name", "new uid"):
            assert part in text
        assert caught.value.context["operator"] == "counter"
        assert ("migrate=" in text) == can_migrate


def words_of(row: Any) -> str:
    return f"{row.a} {row.b}"


@pytest.mark.parametrize("number", [1, 3, 127])
def test_a_version_that_is_not_in_the_history_is_damage(number: int) -> None:
    migrated = change(evolved(ROW, WIDE), state("1:string"), {}, "op", migrates=True).schema
    with pytest.raises(CorruptDataError, match=f"of schema version {number}.*versions 2 to 2"):
        wire_reader(migrated, number)


def test_a_migration_begins_the_history_anew() -> None:
    migrated = change(evolved(ROW, WIDE), state("1:string"), {"b": b"\xa1x"}, "op", migrates=True)
    assert migrated == (state("1:string", version=2), True, True)
    assert first_version(migrated.schema) == 2
    assert migrating_reader(evolved(ROW, WIDE), words_of, 0)(b"\x91\x05") == "5 None"
    assert migrating_reader(evolved(ROW, WIDE), words_of, 1)(b"\x92\x05\xa1x") == "5 x"


def test_the_number_of_versions_is_bounded_and_a_migration_is_the_way_out() -> None:
    types = ["1:row<a:int>", "1:row<a:int,b:int>"]
    schema = evolved(*(types[i % 2] for i in range(127)))
    assert (schema.version, first_version(schema)) == (126, 0)
    with pytest.raises(IncompatibleError, match=r"more than 127 versions.*migrate="):
        change(schema, state(types[1]), {}, "op", migrates=False)
    migrated = change(schema, state(types[1]), {}, "op", migrates=True).schema
    assert (migrated.version, first_version(migrated)) == (127, 127)
    grown = change(migrated, state(types[0]), {}, "op", migrates=False).schema
    assert grown.version == 128
    assert [tuple(wire_reader(grown, n)(data)) for n, data in ((127, b"\x92\x05\x06"), (0, b"\x91\x05"))] == [(5,)] * 2


def test_the_newer_version_of_one_history_is_found() -> None:
    old, new = evolved(ROW, WIDE), evolved(ROW, WIDE, "1:row<b:string>")
    assert newer(old, new, "op") is new
    assert newer(new, old, "op") is new
    expiring = msgspec.structs.replace(old, ttl={"ms": 1})
    assert newer(old, expiring, "op") is expiring
    migrated = change(old, state("1:string"), {}, "op", migrates=True).schema
    assert newer(old, migrated, "op") is migrated
    assert newer(migrated, old, "op") is migrated


def test_two_histories_do_not_mix() -> None:
    mine, theirs = evolved(ROW, WIDE), evolved(ROW, "1:row<a:long>")
    for known, other in ((mine, theirs), (theirs, mine), (mine, evolved(ROW, WIDE, defaults={"b": b"\xa1x"}))):
        with pytest.raises(IncompatibleError, match=r"'orders'.*both called version 1"):
            newer(known, other, "op")


def test_partitions_must_migrate_together() -> None:
    before, grown = evolved(ROW), evolved(ROW, WIDE)
    migrated = change(before, state("1:string"), {}, "op", migrates=True).schema
    assert newest_of([before, grown, before], "op") is grown
    assert newest_of([migrated, migrated], "op") == migrated
    with pytest.raises(IncompatibleError, match="in some partitions only"):
        newest_of([migrated, before], "op")
