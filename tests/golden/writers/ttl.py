"""The golden segment and RocksDB snapshot of states with TTL; `python -m tests.golden.writers.ttl` wrote them.

As with the other golden files: they are never written again. (Run as a program it refuses to overwrite.)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tests.golden.writers.changelog import AT, DATA, HEADER, HIGH, KEY_TYPE, LOW, OPERATOR, key
from varvite.changelog.restore.files import describe_snapshot
from varvite.changelog.schema.history import change
from varvite.changelog.schema.ttl import CleanupSettings, IncrementalSettings, SweepSettings, TtlSettings, with_ttl
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import Op, StateChanges, empty_changes
from varvite.changelog.segments.segment import encode_segment
from varvite.changelog.working_stores.contract import StateActivity
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link, StateSchema

SEGMENT = DATA / "segment-v1-ttl.bin"
SNAPSHOT = DATA / "rocksdb-v1-ttl"
NOW = BatchTime(1_700_000_000_000, 1_600_000_000_000)

_CLEANUP = CleanupSettings(
    full_snapshot=True,
    incremental=IncrementalSettings(size_entries=5, every_record=True),
    sweep=SweepSettings(slice_entries=10, period_ms=60_000),
)
_HOUR = TtlSettings(ttl_ms=3_600_000, time="processing", cleanup=_CLEANUP)
_EVENT = TtlSettings(ttl_ms=1, time="event")
PLAIN = StateSchema(name="total", kind="reducing", value_type="1:int", version=3)
_LONG = StateSchema(name="total", kind="reducing", value_type="1:long")
TOTAL = change(PLAIN, with_ttl(_LONG, PLAIN, _HOUR, NOW), {}, OPERATOR, migrates=False).schema
VISITS = with_ttl(
    StateSchema(name="visits", kind="map", value_type="1:list<int>", map_key_type="1:string"), None, _EVENT, NOW
)
EVENTS = with_ttl(StateSchema(name="events", kind="list", value_type="1:tuple<string,double>"), None, _EVENT, NOW)
OFF = with_ttl(
    StateSchema(name="off", kind="value", value_type="1:string"),
    with_ttl(StateSchema(name="off", kind="value", value_type="1:string"), None, _HOUR, NOW),
    None,
    BatchTime(NOW.time_ms + 5),
)
OLD = StateChanges(PLAIN, [16, 17], [key(0), key(1)], None, None, [7, 8])
"""Values of the time before `TOTAL` had TTL, of its narrower type of then."""


def all_changes() -> list[StateChanges]:
    """Stamped rows of every kind, and a state whose TTL changes without a row."""
    ops = bytes((Op.CLEAR, Op.PUT, Op.PUT, Op.DELETE))
    return [
        StateChanges(TOTAL, [17, 31], [key(1), key(2)], bytes((Op.DELETE, Op.PUT)), None, [None, (NOW.time_ms, -7)]),
        StateChanges(
            VISITS, [16] * 4, [key(0)] * 4, ops, [None, "JFK", "", "EWR"],
            [None, (1_600_000_000_001, b"\x93\x01\xc0\x02"), (-5, None), None],
        ),
        StateChanges(EVENTS, [20, 20], [key(3)] * 2, None, None, [(1, ("a", 0.5)), (2, (None, None))]),
        empty_changes(OFF),
    ]  # fmt: skip


def write_snapshot(directory: Path) -> None:
    """A snapshot with stamped and unstamped rows side by side, after a sweep."""
    with TemporaryDirectory() as scratch:
        store = RocksDBStore.open(Path(scratch) / "db", OPERATOR, KEY_TYPE.type_string(), LOW, HIGH)
        store.apply([OLD], Link(40, "ef" * 16))
        store.apply(all_changes(), AT)
        store.clean_up(NOW, {"total": StateActivity()})
        store.write_snapshot(Path(scratch) / "snapshot")
        store.close()
        directory.mkdir(parents=True)
        for local in describe_snapshot(Path(scratch) / "snapshot"):
            shutil.copyfile(local.path, directory / local.file)


def main() -> None:
    """Write what does not exist."""
    for path in (SEGMENT, SNAPSHOT):
        if path.exists():
            raise SystemExit(f"{path} exists: golden files are not written again")
    SEGMENT.write_bytes(encode_segment(msgspec.structs.replace(HEADER, part=0), all_changes()))
    write_snapshot(SNAPSHOT)


if __name__ == "__main__":
    main()
