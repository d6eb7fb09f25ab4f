"""No files of a snapshot make a restore crash, hang, or raise an error that is not ours, whoever wrote them (I8).

A descriptor lists sizes and checksums, and `fetch_snapshots` checks them. But who may write to the storage writes the
descriptor, too, and a file may have been damaged before its checksum was taken.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random

import pytest

from tests.jobs.decoders import ERRORS, other_bytes
from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, cells, link
from tests.unit.changelog.restore.test_files import MODEL, make_snapshot
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.storage.errors import CorruptDataError, LocalDataError
from varvite.storage.private_directories import TemporaryDirectory

SHORT, LONG = 200, 50_000
"""Snapshots: in each run, and in `make test-all`."""
SLOWEST_S = 20.0
"""Time after which a restore counts as hanging, however loaded the machine is."""

NAME = "snapshots/flights/0"
RANGES = ((0, KEY_GROUPS), (0, 6), (0, 2))
"""A restore of the whole snapshot, on top of it, and of the smaller part of its rows."""


def restored(directory: Path, files: dict[str, bytes], low: int, high: int) -> list[tuple[object, ...]]:
    """The rows of a store of these key groups that is made of fetched files."""
    shutil.rmtree(directory, ignore_errors=True)
    fetched = directory / "tile"
    fetched.mkdir(parents=True)
    for name, data in files.items():
        (fetched / name).write_bytes(data)
    source = SnapshotSource(fetched, low, high, link(1), NAME)
    store = open_clipped(directory / "db", [source], operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high)
    try:
        return cells(store)
    finally:
        store.close()


def files_of(directory: Path) -> dict[str, bytes]:
    snapshot = make_snapshot(directory / "made")
    return {
        path.name: path.read_bytes() for path in snapshot.iterdir() if path.name.startswith(("0", "C", "M", "rocks"))
    }


@pytest.mark.parametrize("snapshots", [SHORT, pytest.param(LONG, marks=[pytest.mark.rare, pytest.mark.timeout(3_600)])])
def test_a_restore_of_other_files_has_the_state_or_an_error_of_ours(snapshots: int) -> None:
    rng = Random(snapshots)
    with TemporaryDirectory("test") as directory:
        files = files_of(directory)
        for _ in range(snapshots):
            which = rng.choice(sorted(files))
            data = files[which]
            for _ in range(rng.choice((1, 1, 2, 4))):
                data = rng.choice(sorted(files.values())) if rng.random() < 0.05 else other_bytes(data, rng)
            low, high = rng.choice(RANGES)
            begin = time.monotonic()
            try:
                held = restored(directory / "store", {**files, which: data}, low, high)
            except ERRORS:
                pass
            except BaseException as error:
                error.add_note(f"{which} is {data!r}, key groups [{low}, {high})")
                raise
            else:
                assert high < KEY_GROUPS or held == MODEL.cells(), f"{which} is {data!r}"
            assert time.monotonic() - begin < SLOWEST_S, data


DAMAGED = {
    "a table cut off": ("000010.sst", lambda data: data[:-100]),
    "a block of a table": ("000010.sst", lambda data: data[:50] + bytes(20) + data[70:]),
    "a manifest cut off": ("MANIFEST-000005", lambda data: data[:60]),
    "a manifest with a record of an unknown kind": (
        "MANIFEST-000005",  # RocksDB reads it for ever
        lambda data: data[:107] + b"\x00\x03\x06" + data[110:],
    ),
    "the name of the manifest": ("CURRENT", lambda _: b"MANIFEST-000099\n"),
    "another file for the manifest": ("MANIFEST-000005", lambda _: b'{"raw_mode":true}'),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_snapshot_that_cannot_be_read_is_damage_of_that_object(case: str) -> None:
    """The error named a directory of this host and told to remove it, or was about the request."""
    which, damage = DAMAGED[case]
    with TemporaryDirectory("test") as directory:
        files = files_of(directory)
        files[which] = damage(files[which])
        for low, high in RANGES:
            with pytest.raises(CorruptDataError, match=r"verify JOB --repair") as caught:
                restored(directory / "store", files, low, high)
            assert not isinstance(caught.value, LocalDataError)
            assert caught.value.context["object_name"] == NAME


def test_settings_that_come_with_a_snapshot_have_no_effect() -> None:
    """rocksdict pickles values where its file of settings says so."""
    with TemporaryDirectory("test") as directory:
        files = files_of(directory)
        for settings in (b"", b"{", b'{"raw_mode":false,"prefix_extractors":{"default":{"CreateFixedPrefix":1}}}'):
            assert restored(directory / "store", {**files, "rocksdict-config.json": settings}, 0, 8) == MODEL.cells()
