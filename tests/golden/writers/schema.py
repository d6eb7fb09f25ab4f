"""Golden files of states whose schema has changed; `python -m tests.golden.writers.schema` wrote them.

As in `tests.golden.writers.changelog`: what is written stays readable, and is never written again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.writers.changelog import DATA
from varvite.changelog.restore.files import describe_snapshot
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.columns import type_of
from varvite.changelog.segments.segment import SegmentHeader, encode_segment
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link, StateSchema, ValueVersion

SEGMENT = DATA / "segment-v1-evolved.bin"
SNAPSHOT = DATA / "rocksdb-v1-evolved"
OPERATOR = "orders"
KEY_TYPE = "1:string"
LOW, HIGH = 0, 4
AT = Link(3, "0123456789abcdef0123456789abcdef")

TYPES = ("1:row<id:int,gone:string>", "1:row<id:long,country:string>", "1:row<country:string,id:long,note:string>")
FIRST = StateSchema(name="order", kind="value", value_type=TYPES[0])
SECOND = StateSchema(
    name="order", kind="value", value_type=TYPES[1], version=1, defaults={"country": b"\xa2CH"},
    earlier=(ValueVersion(value_type=TYPES[0]),),
)  # fmt: skip
THIRD = StateSchema(
    name="order", kind="value", value_type=TYPES[2], version=2,
    earlier=(ValueVersion(value_type=TYPES[0]), ValueVersion(value_type=TYPES[1], defaults={"country": b"\xa2CH"})),
)  # fmt: skip
MIGRATED = StateSchema(name="migrated", kind="list", value_type="1:string", version=130)
LATER = StateSchema(
    name="migrated", kind="list", value_type="1:string", version=131, earlier=(ValueVersion(value_type="1:string"),)
)
HEADER = SegmentHeader(
    job_id="job-0001", operator=OPERATOR, partition=0, low=LOW, high=HIGH, seq=3, tag="ab" * 16, key_type=KEY_TYPE
)


def changes(order: StateSchema, key: str, value: Any, migrated: StateSchema | None = None) -> list[StateChanges]:
    """One order, and perhaps an element of the migrated state."""
    made = [StateChanges(order, [1], [key], None, None, [type_of(order.value_type).freeze(value)])]
    if migrated is not None:
        made.append(StateChanges(migrated, [2], [key], None, None, [f"of version {migrated.version}"]))
    return made


BATCHES = [
    changes(FIRST, "a", (1, "x")),
    changes(SECOND, "b", (2, "AT"), MIGRATED),
    changes(THIRD, "c", ("DE", 2**40, "n"), LATER),
]


def write_snapshot(directory: Path) -> None:
    """A snapshot with values of three versions."""
    with TemporaryDirectory() as scratch:
        options = RocksDBOptions(compression="lz4")
        store = RocksDBStore.open(Path(scratch) / "db", OPERATOR, KEY_TYPE, LOW, HIGH, options)
        for seq, batch in enumerate(BATCHES, 1):
            store.apply(batch, AT if seq == AT.seq else Link(seq, f"{seq:032x}"))
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
    SEGMENT.write_bytes(encode_segment(HEADER, BATCHES[-1]))
    write_snapshot(SNAPSHOT)


if __name__ == "__main__":
    main()
