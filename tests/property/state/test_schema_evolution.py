"""A value that was written with an old type reads as a new one as if it had been converted by hand.

Random types, and random compatible changes and migrations of them, over both stores, the log, snapshots, rollbacks and
a fold by somebody who knows neither the user's code nor the new types: the materializer.
"""

from __future__ import annotations

import shutil
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.keyed_job import MAX_PARALLELISM, KeyedJob
from tests.jobs.strategies import hashable_types, values_of
from tests.stores.working_stores import KINDS, OPERATOR, open_snapshot
from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.row import make_row, row_class
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.segment import decode_segment
from varvite.changelog.types import basic, decimals
from varvite.changelog.types.collections import ListType, MapType, SequenceType
from varvite.changelog.types.composites import CompositeType, RowType, TupleType, quote_name
from varvite.changelog.types.evolution import Incompatible, evolve
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.types.key_wire import key_writer
from varvite.changelog.types.wire import WireType
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link
from varvite.storage.private_directories import TemporaryDirectory
from varvite.testing.contracts.working_store import contents

if TYPE_CHECKING:
    from pathlib import Path

BYTE, SHORT, INT, LONG = (as_type(t) for t in (Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()))
BIG_INT, BIG_DEC = as_type(Types.BIG_INT()), as_type(Types.BIG_DEC())
FLOAT, DOUBLE, STRING = as_type(Types.FLOAT()), as_type(Types.DOUBLE()), as_type(Types.STRING())
WIDER: dict[str, list[WireType]] = {
    "byte": [SHORT, INT, LONG, FLOAT, DOUBLE, BIG_INT, BIG_DEC, decimals.DecimalType(5, 2)],
    "short": [INT, LONG, FLOAT, DOUBLE, BIG_INT, decimals.DecimalType(5, 0)],
    "int": [LONG, DOUBLE, BIG_INT, decimals.DecimalType(38, 20)],
    "long": [BIG_INT, BIG_DEC, decimals.DecimalType(19, 0)],
    "float": [DOUBLE],
    "big_int": [BIG_DEC],
    "decimal(10,2)": [decimals.DecimalType(12, 4), BIG_DEC],
    "char": [STRING],
}

simple = hashable_types(1)
stored_types = st.one_of(
    hashable_types(2),
    simple.map(ListType),
    st.builds(MapType, hashable_types(0), simple),
    st.lists(st.one_of(simple, simple.map(ListType)), min_size=1, max_size=3).map(
        lambda types: RowType([f"c{i}" for i in range(len(types))], types)
    ),
)


def grown(draw: st.DrawFn, old: WireType, path: str, added: dict[str, WireType]) -> WireType:
    """A type that values of `old` can be read as; fields that are new go to `added`, by path."""
    if isinstance(old, RowType):
        kept = draw(st.lists(st.sampled_from(range(old.arity)), min_size=1, max_size=old.arity, unique=True))
        fields = {old.names[i]: grown(draw, old.types[i], _joined(path, quote_name(old.names[i])), added) for i in kept}
        for i in range(draw(st.integers(0, 2))):
            name = f"new {len(added)} {i}"
            if name not in old.names:
                fields[name] = added[_joined(path, quote_name(name))] = draw(simple)
        names = draw(st.permutations(list(fields)))
        return RowType(names, [fields[name] for name in names])
    if isinstance(old, TupleType):
        return TupleType([grown(draw, part, _joined(path, str(i)), added) for i, part in enumerate(old.types)])
    if isinstance(old, ListType):
        return ListType(grown(draw, old.element, path, added))
    if isinstance(old, MapType):
        return MapType(old.key, grown(draw, old.value, path, added))
    return draw(st.sampled_from([old, *WIDER.get(old.notation(), [])]))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def by_hand(old: WireType, new: WireType, value: Any, defaults: dict[str, Any], path: str = "") -> Any:  # noqa: PLR0911 - a case each
    """The value of the old type, as a user would write it for the new one."""
    if value is None or old == new:
        return value
    if isinstance(old, RowType) and isinstance(new, RowType):
        held = dict(zip(old.names, zip(old.types, value, strict=True), strict=True))
        made: list[Any] = []
        for name, kind in zip(new.names, new.types, strict=True):
            here = _joined(path, quote_name(name))
            made.append(
                by_hand(held[name][0], kind, held[name][1], defaults, here) if name in held else defaults.get(here)
            )
        return make_row(row_class(new.names), made)
    if isinstance(old, CompositeType) and isinstance(new, CompositeType):
        parts = zip(old.types, new.types, value, strict=True)
        return tuple(by_hand(a, b, v, defaults, _joined(path, str(i))) for i, (a, b, v) in enumerate(parts))
    if isinstance(old, SequenceType) and isinstance(new, SequenceType):
        return [by_hand(old.element, new.element, element, defaults, path) for element in value]
    if isinstance(old, MapType) and isinstance(new, MapType):
        return {key: by_hand(old.value, new.value, held, defaults, path) for key, held in value.items()}
    if isinstance(new, basic.FloatingType):
        return float(value)
    return Decimal(value) if isinstance(new, (decimals.DecimalType, decimals.BigDecimalType)) else value


class Version:
    """A type, what was written with it, and the step to it: automatic with defaults, or a migration."""

    def __init__(self, draw: st.DrawFn, before: Version | None) -> None:
        added: dict[str, WireType] = {}
        self.migrates = before is not None and draw(st.integers(0, 4)) == 4
        is_new = before is None or self.migrates
        self.type = draw(stored_types) if is_new or before is None else grown(draw, before.type, "", added)
        self.defaults = {path: draw(st.none() | values_of(kind)) for path, kind in added.items()}
        # What is frozen is canonical: floats are rounded, and so on.
        canonical = values_of(self.type).map(lambda value: self.type.thaw(self.type.freeze(value)))
        self.migrated: Any = draw(canonical) if self.migrates else None
        """Migration of every value."""
        self.written: dict[str, Any] = draw(st.dictionaries(st.sampled_from("abcd"), canonical, max_size=3))

    def descriptors(self) -> list[StateDescriptor]:
        migrate = (lambda _: self.migrated) if self.migrates else None
        return [
            ValueStateDescriptor("value", self.type, defaults=self.defaults, migrate=migrate),
            ListStateDescriptor("list", self.type, defaults=self.defaults, migrate=migrate),
            MapStateDescriptor("map", "string", self.type, defaults=self.defaults, migrate=migrate),
        ]

    def converted(self, before: Version, value: Any) -> Any:
        """A value of the version before, by hand."""
        if self.migrates and self.type != before.type:
            return self.migrated
        return by_hand(before.type, self.type, value, self.defaults)

    def write(self, job: KeyedJob) -> None:
        value, elements, entries = self.descriptors()
        for key, written in self.written.items():
            job.at(key, value).update(written)
            job.at(key, elements).add(written)
            job.at("one", entries).put(key, written)


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    versions: list[Version] = []
    for _ in range(draw(st.integers(2, 4))):
        versions.append(Version(draw, versions[-1] if versions else None))
    return versions


def expected(versions: list[Version]) -> dict[str, dict[Any, Any]]:
    """Final content of the state: wire forms by key, without key groups."""
    values: dict[str, Any] = {}
    elements: dict[str, list[Any]] = {}
    for i, version in enumerate(versions):
        if i:
            before = versions[i - 1]
            values = {k: version.converted(before, v) for k, v in values.items()}
            elements = {k: [version.converted(before, e) for e in es] for k, es in elements.items()}
        for key, written in version.written.items():
            values[key] = written
            elements.setdefault(key, []).append(written)
    final = versions[-1].type

    def wire(value: Any) -> bytes:
        return final.to_wire(final.freeze(value))

    return {
        "value": {_key(k): wire(v) for k, v in values.items()},
        "list": {_key(k): [wire(e) for e in es] for k, es in elements.items()},
        "map": {(_key("one"), _key(k)): wire(v) for k, v in values.items()},
    }


def _key(key: str) -> bytes:
    return key_writer(STRING)(key)


def found(store: Any) -> dict[str, dict[Any, Any]]:
    return {
        name: {(k[1] if len(k) == 2 else k[1:]): v for k, v in rows.items()} for name, rows in contents(store).items()
    }


@given(histories())
def test_a_random_change_is_compatible(versions: list[Version]) -> None:
    for before, after in pairwise(versions):
        assert after.migrates or not isinstance(evolve(before.type, after.type), Incompatible)


@given(histories(), st.data())
@settings(max_examples=60)
def test_old_values_read_as_if_converted_by_hand(versions: list[Version], data: st.DataObject) -> None:
    """However the job is started anew, and whatever is tried and rolled back in between."""
    with TemporaryDirectory("test") as directory:
        job = KeyedJob(data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(["on", "off"])), directory)
        for version in versions:
            restart = data.draw(st.sampled_from(["redeploy", "crash", "switch", "snapshot"]))
            if data.draw(st.booleans()):
                job.redeploy()
                for descriptor in version.descriptors():
                    job.handle(descriptor)
                version.write(job)  # of a batch that never is
            if restart == "redeploy":
                job.redeploy()
            else:
                if restart == "snapshot":
                    job.redeploy()
                    job.materialize()
                job.crash(data.draw(st.sampled_from(KINDS)) if restart == "switch" else None)
            for descriptor in version.descriptors():
                job.handle(descriptor)
            version.write(job)
            job.commit()
        assert found(job.backend.store) == expected(versions)
        job.crash()
        for descriptor in versions[-1].descriptors():
            job.handle(descriptor)
        assert found(job.backend.store) == expected(versions)
        job.close()


@given(histories(), st.data())
@settings(max_examples=40)
def test_a_fold_without_the_code_keeps_what_the_code_will_read(versions: list[Version], data: st.DataObject) -> None:
    """The materializer folds segments of all versions; its snapshot is then opened by the newest code."""
    with TemporaryDirectory("test") as directory:
        job = KeyedJob("hashmap", "on", directory)
        for version in versions:
            job.redeploy()
            for descriptor in version.descriptors():
                job.handle(descriptor)
            version.write(job)
            job.commit()
        segments = [decode_segment(encoded, "segment") for encoded in job._segments]
        batches = [Batch(segment.changes(), segment.header.seq) for segment in segments]
        follower = RocksDBStore.open(directory / "follower", OPERATOR, STRING.type_string(), 0, MAX_PARALLELISM)
        cut = data.draw(st.integers(0, len(batches)))
        end = Link(len(batches), "end")
        follower.fold(batches[:cut], end, last=False)
        follower.fold(batches[cut:], end, last=True)
        follower.write_snapshot(directory / "snapshot")
        follower.close()
        for kind in KINDS:
            _check_snapshot(kind, directory / "snapshot", directory / f"opened-{kind}", versions, job)
        job.close()


def _check_snapshot(kind: str, snapshot: Path, copy: Path, versions: list[Version], job: KeyedJob) -> None:
    shutil.copytree(snapshot, copy)
    store = open_snapshot(kind, copy)
    backend = KeyedStateBackend(store, STRING, OPERATOR, job.backend.schemas)
    value, elements, entries = versions[-1].descriptors()
    backend.get_state(value)  # type: ignore[arg-type]
    backend.get_list_state(elements)  # type: ignore[arg-type]
    backend.get_map_state(entries)  # type: ignore[arg-type]
    assert found(store) == expected(versions)
    store.close()
