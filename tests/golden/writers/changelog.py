"""Content of the golden segment and the golden RocksDB snapshot; `python -m tests.golden.writers.changelog` wrote them.

The files stand for everything that was ever written in these formats: they are never written again. A new format
version gets new files beside them. (Run as a program it refuses to overwrite.)
"""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from varvite.changelog.restore.files import describe_snapshot
from varvite.changelog.row import make_row, row_class
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.segment import SegmentHeader, encode_segment
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link, StateSchema

DATA = Path(__file__).parents[1] / "data"
SEGMENT = DATA / "segment-v1.bin"
SNAPSHOT = DATA / "rocksdb-v1"
TIMER_SEGMENT = DATA / "segment-v1-timers.bin"
TIMER_SNAPSHOT = DATA / "rocksdb-v1-timers"
STRING = as_type(Types.STRING())
LONG = as_type(Types.LONG())
KEY_TYPE = as_type(Types.TUPLE([Types.STRING(), Types.LONG()]))
OPERATOR = "flights per aircraft"
LOW, HIGH = 16, 32
AT = Link(41, "0123456789abcdef0123456789abcdef")

_ROW = as_type(Types.ROW_NAMED(["airport", "delay"], [Types.STRING(), Types.DOUBLE()]))
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (Types.BOOLEAN(), [True, False]),
    "byte": (Types.BYTE(), [-128, 127]),
    "short": (Types.SHORT(), [-32768, 32767]),
    "int": (Types.INT(), [-(2**31), 2**31 - 1]),
    "long": (Types.LONG(), [-(2**63), 2**63 - 1]),
    "float": (Types.FLOAT(), [0.5, float("inf")]),
    "double": (Types.DOUBLE(), [1e308, -0.1]),
    "string": (Types.STRING(), ["", "Zürich ✈"]),
    "char": (Types.CHAR(), ["x", "é"]),
    "binary": (Types.BINARY(), [b"", b"\x00\xff"]),
    "big_int": (Types.BIG_INT(), [2**200, -(2**64)]),
    "decimal": (Types.DECIMAL(10, 2), [Decimal("12345678.90"), Decimal("-0.01")]),
    "big_dec": (Types.BIG_DEC(), [Decimal("1.500"), Decimal("-1E+30")]),
    "instant": (Types.INSTANT(), [datetime(2013, 1, 1, 5, 15, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC)]),
    "date": (Types.SQL_DATE(), [date(2013, 12, 31), date.min]),
    "time": (Types.SQL_TIME(), [time(23, 59, 59, 999999), time(0)]),
    "timestamp": (Types.SQL_TIMESTAMP(), [datetime(2013, 1, 1, 5, 15), datetime(9999, 12, 31)]),  # noqa: DTZ001
    "tuple": (Types.TUPLE([Types.LONG(), Types.DOUBLE()]), [(1, 0.5), (None, None)]),
    "row": (_ROW, [make_row(row_class(("airport", "delay")), ("JFK", None))]),
    "list": (Types.LIST(Types.LONG()), [[1, None, 3], []]),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1, "b": None}]),
    "primitive_array": (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, 2]]),
    "basic_array": (Types.BASIC_ARRAY(Types.STRING()), [["a", "b"]]),
    "object_array": (Types.OBJECT_ARRAY(Types.DOUBLE()), [[0.5]]),
    "tuple_of_list": (Types.TUPLE([Types.STRING(), Types.LIST(Types.LONG())]), [("a", [1])]),
}
"""Name → (type, values). Pickled objects are left out: their bytes are Python's."""


def stored_values() -> dict[str, tuple[Any, list[Any]]]:
    """Name → (type, stored forms)."""
    return {name: (as_type(t), [as_type(t).freeze(v) for v in values]) for name, (t, values) in VALUES.items()}


def key(i: int) -> tuple[str, int]:
    """The i-th key."""
    return (f"N{i}", i)


def all_changes() -> list[StateChanges]:
    """Every kind of state and of row, and every type."""
    made: list[StateChanges] = []
    for name, (kind, stored) in stored_values().items():
        schema = StateSchema(name=f"value {name}", kind="value", value_type=kind.type_string())
        keys = [key(i) for i in range(len(stored))]
        made.append(StateChanges(schema, [LOW + i for i in range(len(keys))], keys, None, None, stored))
    total = StateSchema(name="total", kind="reducing", value_type=LONG.type_string(), ttl={"ms": 1000}, version=3)
    mean = StateSchema(name="mean", kind="aggregating", value_type=as_type(VALUES["tuple"][0]).type_string())
    visits = StateSchema(
        name="visits", kind="map", value_type=LONG.type_string(), map_key_type=STRING.type_string(), version=127
    )
    plain_map = StateSchema(
        name="plain map", kind="map", value_type=_ROW.type_string(), map_key_type=KEY_TYPE.type_string()
    )
    events = StateSchema(name="events", kind="list", value_type=STRING.type_string())
    plain_list = StateSchema(name="plain list", kind="list", value_type=as_type(VALUES["list"][0]).type_string())
    put, delete, clear, append = (bytes((op,)) for op in (Op.PUT, Op.DELETE, Op.CLEAR, Op.APPEND))
    row = as_type(_ROW).freeze(VALUES["row"][1][0])
    made += [
        StateChanges(total, [16, 17, 31], [key(0), key(1), key(2)], put + delete + put, None, [7, None, -7]),
        StateChanges(mean, [16], [key(0)], None, None, [(1, 0.5)]),
        StateChanges(
            visits, [16, 16, 16, 20, 20], [key(0)] * 3 + [key(3)] * 2, clear + put + put + put + delete,
            [None, "JFK", "LGA", "", "EWR"], [None, 1, None, 2, None],
        ),
        StateChanges(plain_map, [16], [key(0)], None, [key(9)], [row]),
        StateChanges(
            events, [16, 16, 16, 30], [key(0)] * 3 + [key(4)], clear + append + append + append, None,
            [None, "first", "second", ""],
        ),
        StateChanges(plain_list, [16], [key(0)], None, None, [as_type(VALUES["list"][0]).freeze([1, 2])]),
    ]  # fmt: skip
    return made


def timer_changes() -> list[StateChanges]:
    """Timers with and without namespaces, set and removed, and with the null key."""
    plain = StateSchema(name="_timer_state/event_user-timers", kind="timers", value_type=LONG.type_string())
    window = as_type(Types.TUPLE([Types.LONG(), Types.LONG()])).type_string()
    named = StateSchema(
        name="_timer_state/processing_windows", kind="timers", value_type=LONG.type_string(), namespace_type=window
    )
    keys = [key(0), None, key(1), key(2)]
    ops = bytes((Op.PUT, Op.PUT, Op.DELETE, Op.PUT))
    return [
        StateChanges(plain, [16, 17, 20, 31], keys, None, None, [-(2**63), -1, 0, 2**63 - 1]),
        StateChanges(named, [16, 16, 16, 31], keys, ops, None, [9, 9, 5, 0], [(0, 10), None, (5, 15), (0, None)]),
    ]


HEADER = SegmentHeader(
    job_id="job-0001", operator=OPERATOR, partition=1, low=LOW, high=HIGH, seq=41, tag="ab" * 16, part=2,
    key_type=KEY_TYPE.type_string(),
)  # fmt: skip


def write_snapshot(directory: Path, changes: list[StateChanges]) -> None:
    """A snapshot after two batches, with small files for small bytes."""
    with TemporaryDirectory() as scratch:
        options = RocksDBOptions(compression="lz4")
        store = RocksDBStore.open(Path(scratch) / "db", OPERATOR, KEY_TYPE.type_string(), LOW, HIGH, options)
        store.apply(changes, Link(40, "ef" * 16))
        store.flush()
        store.apply(changes, AT)
        store.write_snapshot(Path(scratch) / "snapshot")
        store.close()
        directory.mkdir(parents=True)
        for local in describe_snapshot(Path(scratch) / "snapshot"):
            shutil.copyfile(local.path, directory / local.file)


def main() -> None:
    """Write what does not exist."""
    DATA.mkdir(exist_ok=True)
    files = {SEGMENT: all_changes(), TIMER_SEGMENT: timer_changes()}
    snapshots = {SNAPSHOT: all_changes(), TIMER_SNAPSHOT: timer_changes()}
    missing = [path for path in (*files, *snapshots) if not path.exists()]
    if not missing:
        raise SystemExit("all golden files exist: they are not written again")
    for path in missing:
        if path in files:
            path.write_bytes(encode_segment(HEADER, files[path]))
        else:
            write_snapshot(path, snapshots[path])


if __name__ == "__main__":
    main()
