"""Keyed state as plain dicts, batches of changes, and what a store holds in the same form.

Four states, one of each kind of row, keyed by string: `total` (value, LONG), `by_name` (map, STRING → LONG, which may
be null), `events` (list, STRING) and `alarms` (timers, in namespaces of STRING).
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.segment import Segment, SegmentHeader, decode_segment, encode_segment
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.format.records import Link, StateSchema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from varvite.changelog.working_stores.contract import WorkingStore

KEY_GROUPS = 8
OPERATOR = "flights"
STRING = as_type(Types.STRING()).type_string()
LONG = as_type(Types.LONG()).type_string()
KEY_TYPE = STRING
TOTAL = StateSchema(name="total", kind="value", value_type=LONG)
BY_NAME = StateSchema(name="by_name", kind="map", value_type=LONG, map_key_type=STRING)
EVENTS = StateSchema(name="events", kind="list", value_type=STRING)
ALARMS = StateSchema(name="alarms", kind="timers", value_type=LONG, namespace_type=STRING)

GONE = object()
"""As a value: delete."""


def key_group(key: str) -> int:
    """The key group of a key, of `KEY_GROUPS`."""
    return zlib.crc32(key.encode()) % KEY_GROUPS


def random_text(rng: random.Random, length: int) -> str:
    """A text of that length, a multiple of four, of which little compresses away."""
    return base64.b64encode(rng.randbytes(length * 3 // 4)).decode()


@dataclass
class BatchChanges:
    """The net effect of a batch: per state and key."""

    totals: dict[str, Any] = field(default_factory=dict)
    """Key → value or GONE."""
    by_name: dict[str, tuple[bool, dict[str, Any]]] = field(default_factory=dict)
    """Key → (clear first, map key → value or None or GONE)."""
    events: dict[str, tuple[bool, list[str]]] = field(default_factory=dict)
    """Key → (clear first, elements)."""
    alarms: dict[tuple[str, int, str | None], bool] = field(default_factory=dict)
    """(key, time, namespace) → set, not removed."""

    def rows(self, seen: Callable[[str], bool] = lambda _: True) -> list[StateChanges]:
        """As changes, of the keys that are seen."""
        totals = [
            (k, Op.DELETE if v is GONE else Op.PUT, None, None if v is GONE else v) for k, v in self.totals.items()
        ]
        maps: list[tuple[str, Op, Any, Any]] = []
        for key, (clear, entries) in self.by_name.items():
            maps += [(key, Op.CLEAR, None, None)] if clear else []
            maps += [(key, Op.DELETE, m, None) if v is GONE else (key, Op.PUT, m, v) for m, v in entries.items()]
        events: list[tuple[str, Op, Any, Any]] = []
        for key, (clear, elements) in self.events.items():
            events += [(key, Op.CLEAR, None, None)] if clear else []
            events += [(key, Op.APPEND, None, element) for element in elements]
        alarms = [
            (key, Op.PUT if is_set else Op.DELETE, namespace, time_ms)
            for (key, time_ms, namespace), is_set in self.alarms.items()
        ]
        states = ((TOTAL, totals), (BY_NAME, maps), (EVENTS, events), (ALARMS, alarms))
        made = [changes(schema, rows, seen) for schema, rows in states]
        return [change for change in made if len(change)]

    def split(self, parts: int) -> list[BatchChanges]:
        """The same in several parts that apply in this order; what is cleared was changed by the first part before."""
        made = [BatchChanges() for _ in range(parts)]
        for i, (key, value) in enumerate(self.totals.items()):
            made[i % parts].totals[key] = value
        for key, (clear, entries) in self.by_name.items():
            left = made[1:] if clear and parts > 1 else made
            made[0].by_name[key] = (False, {"cleared": 0, "cleared too": GONE})
            left[0].by_name[key] = (clear, {})
            for i, (map_key, value) in enumerate(entries.items()):
                part = left[i % len(left)].by_name.setdefault(key, (False, {}))
                part[1][map_key] = value
        for key, (clear, elements) in self.events.items():
            left = made[1:] if clear and parts > 1 else made
            made[0].events[key] = (False, ["cleared"])
            left[0].events[key] = (clear, [])
            for i, element in enumerate(elements):
                part = left[i * len(left) // len(elements)].events.setdefault(key, (False, []))
                part[1].append(element)
        for i, (alarm, is_set) in enumerate(self.alarms.items()):
            made[i % parts].alarms[alarm] = is_set
        return made


def changes(
    schema: StateSchema, rows: Sequence[tuple[str, Op, Any, Any]], seen: Callable[[str], bool] = lambda _: True
) -> StateChanges:
    """Rows of (key, op, map key or namespace, value) as changes; `ops` is left out where it may be."""
    kept = [row for row in rows if seen(row[0])]
    ops = bytes(op for _, op, _, _ in kept)
    plain = bytes((Op.APPEND if schema.kind == "list" else Op.PUT,)) * len(kept)
    return StateChanges(
        schema=schema,
        key_groups=[key_group(key) for key, *_ in kept],
        keys=[key for key, *_ in kept],
        ops=None if ops == plain else ops,
        map_keys=[map_key for _, _, map_key, _ in kept] if schema.kind == "map" else None,
        values=[value for *_, value in kept],
        namespaces=[namespace for _, _, namespace, _ in kept] if schema.kind == "timers" else None,
    )


def puts(values: dict[str, int]) -> list[StateChanges]:
    """A batch that sets `total` of these keys."""
    return BatchChanges(totals=dict(values)).rows()


@dataclass
class Model:
    """The state as it must be."""

    totals: dict[str, int] = field(default_factory=dict)
    by_name: dict[str, dict[str, int | None]] = field(default_factory=dict)
    events: dict[str, list[str]] = field(default_factory=dict)
    alarms: dict[str, set[tuple[int, str | None]]] = field(default_factory=dict)

    def apply(self, batch: BatchChanges) -> None:
        for key, value in batch.totals.items():
            if value is GONE:
                self.totals.pop(key, None)
            else:
                self.totals[key] = value
        for key, (clear, entries) in batch.by_name.items():
            held = {} if clear else self.by_name.get(key, {})
            for map_key, value in entries.items():
                if value is GONE:
                    held.pop(map_key, None)
                else:
                    held[map_key] = value
            self.by_name[key] = held
        for key, (clear, elements) in batch.events.items():
            self.events[key] = ([] if clear else self.events.get(key, [])) + elements
        for (key, *alarm), is_set in batch.alarms.items():
            held_alarms = set(self.alarms.get(key, ()))
            (held_alarms.add if is_set else held_alarms.discard)(tuple(alarm))
            self.alarms[key] = held_alarms

    def cells(self, low: int = 0, high: int = KEY_GROUPS) -> dict[str, dict[str, Any]]:
        """Cells that are not empty, of key groups `[low, high)`."""
        states = {"total": self.totals, "by_name": self.by_name, "events": self.events, "alarms": self.alarms}
        own = range(low, high)
        empty = ({}, [], set())
        return {
            name: {k: v for k, v in cells.items() if key_group(k) in own and v not in empty}
            for name, cells in states.items()
        }


def model_of(*steps: BatchChanges) -> Model:
    """The state after these batches."""
    model = Model()
    for step in steps:
        model.apply(step)
    return model


FULL = BatchChanges(
    totals={"a": 1, "b": 2, "ab": 3},
    by_name={"a": (False, {"x": 1, "y": None}), "ab": (False, {"x": 2})},
    events={"a": (False, ["one", "two"]), "ab": (False, ["three"])},
    alarms={("a", 1, "x"): True, ("a", 1, None): True, ("ab", -1, "x"): True},
)
"""A batch with rows of every state, for keys that begin alike."""


def cells(store: WorkingStore) -> dict[str, dict[str, Any]]:
    """Content of a store, in the form of `Model.cells`; also checks the key groups that it tells."""
    found: dict[str, dict[str, Any]] = {"total": {}, "by_name": {}, "events": {}, "alarms": {}}
    for group, key, value in store.value_table(TOTAL).items():
        assert group == key_group(key)
        found["total"][key] = value
    for group, key, map_key, value in store.map_table(BY_NAME).items():
        assert group == key_group(key)
        found["by_name"].setdefault(key, {})[map_key] = value
    for group, key, elements in store.list_table(EVENTS).items():
        assert group == key_group(key)
        found["events"][key] = elements
    alarms = store.timer_table(ALARMS)
    for group, packed in alarms.items():
        time_ms, key, namespace = alarms.form.unpack(packed)
        assert group == key_group(key)
        found["alarms"].setdefault(key, set()).add((time_ms, namespace))
    return found


def link(seq: int) -> Link:
    """The commit of a seq."""
    return Link(seq, f"{seq:032x}")


def segment_header(seq: int, low: int = 0, high: int = KEY_GROUPS, **fields: Any) -> SegmentHeader:
    """A header of the model's job."""
    known: dict[str, Any] = {
        "job_id": "job", "operator": OPERATOR, "partition": 0, "low": low, "high": high, "seq": seq,
        "tag": f"{seq:032x}", "key_type": KEY_TYPE,
    }  # fmt: skip
    return SegmentHeader(**{**known, **fields})


def segment_with(
    rows: Sequence[StateChanges], seq: int, low: int = 0, high: int = KEY_GROUPS, part: int = 0
) -> Segment:
    """A segment of these rows, encoded and decoded."""
    return decode_segment(encode_segment(segment_header(seq, low, high, part=part), rows), f"seg/{seq}")


def segment_of(batch: BatchChanges, seq: int, low: int = 0, high: int = KEY_GROUPS, part: int = 0) -> Segment:
    """Log of a batch for the partition `[low, high)`."""
    return segment_with(batch.rows(lambda key: key_group(key) in range(low, high)), seq, low, high, part)


KEYS = [f"N{i}" for i in range(12)] + ["", "a", "ab", "é", "x" * 40]
keys = st.sampled_from(KEYS)
longs = st.integers(-(2**63), 2**63 - 1)
_names = st.sampled_from(["JFK", "LGA", "EWR", "", "a", "aa"])
_entries = st.dictionaries(_names, st.none() | st.just(GONE) | longs, max_size=4)
_elements = st.lists(st.text(max_size=3), max_size=4)
_alarms = st.tuples(keys, st.integers(-3, 3) | longs, st.none() | _names)
batches = st.builds(
    BatchChanges,
    totals=st.dictionaries(keys, st.just(GONE) | longs, max_size=6),
    by_name=st.dictionaries(keys, st.tuples(st.booleans(), _entries), max_size=4),
    events=st.dictionaries(keys, st.tuples(st.booleans(), _elements), max_size=4),
    alarms=st.dictionaries(_alarms, st.booleans(), max_size=6),
)
"""Random batches."""
