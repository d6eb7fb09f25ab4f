"""Every object of the storage layer is read and written as ever, and damage to it is found and named (I8)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec
import pytest

from tests.golden.writers.storage import (
    DATA,
    ENTRIES,
    FRAME,
    IMAGE,
    JOB_ID,
    OPERATOR,
    RECORDS,
    encoded,
    golden_pack,
    golden_pack_of_images,
)
from varvite.changelog.commit.pack import open_pack
from varvite.storage.errors import CorruptDataError, IncompatibleError
from varvite.storage.format import records as storage_records
from varvite.storage.format.frame import PREFIX_BYTES, frame, unframe
from varvite.storage.format.records import (
    JobRecord,
    Pin,
    Record,
    Savepoint,
    SnapshotDescriptor,
    decode_entry,
    decode_record,
)

NAME = "some/object"
FILES = sorted(encoded())


def reader_of(file: str) -> Callable[[bytes], Any]:
    if file in ENTRIES:
        return lambda data: decode_entry(data, NAME)
    if file in RECORDS:
        return lambda data: decode_record(data, type(RECORDS[file]), NAME)
    if file.startswith("pack"):
        return lambda data: open_pack(data, NAME)
    return lambda data: unframe(FRAME[0], FRAME[1], data, NAME)


def test_there_is_a_golden_file_for_every_record() -> None:
    assert sorted(path.name for path in DATA.iterdir()) == FILES
    assert {type(r) for r in RECORDS.values()} == {JobRecord, SnapshotDescriptor, Pin, Savepoint}


def fields_told(value: Any) -> Iterator[tuple[str, str]]:
    """Every field of the records in a value that is not at its default, for those are not written."""
    if isinstance(value, (tuple, list)):
        for one in cast("Iterable[Any]", value):
            yield from fields_told(one)
    elif isinstance(value, Record):
        for field in msgspec.structs.fields(value):
            found = getattr(value, field.name)
            if field.required or found != field.default:
                yield type(value).__name__, field.name
            yield from fields_told(found)


def test_every_field_of_every_record_is_in_a_golden_file() -> None:
    written = {*fields_told([entry for entry, _ in ENTRIES.values()]), *fields_told(list(RECORDS.values()))}
    records = [one for one in vars(storage_records).values() if isinstance(one, type) and issubclass(one, Record)]
    known = {(record.__name__, field.name) for record in records for field in msgspec.structs.fields(record)}
    assert known - written == {("JobRecord", "key_hash"), ("Savepoint", "key_hash")}  # there is one hash only


@pytest.mark.parametrize("file", FILES)
def test_todays_code_writes_the_golden_bytes(file: str) -> None:
    assert encoded()[file] == (DATA / file).read_bytes()


@pytest.mark.parametrize("file", sorted(ENTRIES))
def test_golden_entries_are_read(file: str) -> None:
    entry, blob = decode_entry((DATA / file).read_bytes(), NAME)
    assert (entry, bytes(blob)) == ENTRIES[file]


@pytest.mark.parametrize("file", sorted(RECORDS))
def test_golden_records_are_read(file: str) -> None:
    assert decode_record((DATA / file).read_bytes(), type(RECORDS[file]), NAME) == RECORDS[file]


def test_the_golden_frame_is_read() -> None:
    opened = unframe(FRAME[0], FRAME[1], (DATA / "frame.bin").read_bytes(), NAME)
    assert (opened.version, opened.header, bytes(opened.blob)) == FRAME[1:]


def test_the_golden_pack_is_read_by_its_references() -> None:
    body = (DATA / "pack.bin").read_bytes()
    header, blob = open_pack(body, NAME)
    assert (header.job_id, header.slot, bytes(blob)) == (JOB_ID, 9, b"fivesixFIVEVIII")
    found = [
        (r.operator, r.low, r.high, r.seq_first, r.seq_last, body[r.data.offset : r.data.offset + r.data.length])
        for r in golden_pack().refs
    ]
    assert found == [(OPERATOR, 0, 64, 5, 6, b"fivesix"), (OPERATOR, 64, 128, 5, 8, b"FIVEVIII")]
    assert all(r.data.crc32 == zlib.crc32(f[5]) for r, f in zip(golden_pack().refs, found, strict=True))


def test_the_golden_pack_of_images_holds_the_shared_image_once() -> None:
    body = (DATA / "pack-images.bin").read_bytes()
    assert bytes(open_pack(body, NAME).blob) == b"five" + IMAGE
    for old, new in golden_pack_of_images().images:
        assert (new.operator, new.partition, new.parallelism, new.seq) == (OPERATOR, old.partition, 2, 8)
        assert body[new.data.offset : new.data.offset + new.data.length] == IMAGE


def test_only_entries_with_images_need_the_newer_version() -> None:
    versions = {file: int.from_bytes((DATA / file).read_bytes()[10:12], "big") for file in ENTRIES}
    assert {file for file, version in versions.items() if version == 2} == {
        "commit-images.bin", "commit-images-full.bin",
    }  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_anywhere_is_found_and_the_object_named(file: str) -> None:
    data, read = (DATA / file).read_bytes(), reader_of(file)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptDataError) as caught:
            read(bytes(damaged))
        assert caught.value.context["object_name"] == NAME, position


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_or_longer_object_is_found_and_named(file: str) -> None:
    data, read = (DATA / file).read_bytes(), reader_of(file)
    for damaged in (*(data[:length] for length in range(len(data))), data + b"\0", data + data):
        with pytest.raises(CorruptDataError) as caught:
            read(damaged)
        assert caught.value.context["object_name"] == NAME


@pytest.mark.parametrize("file", FILES)
def test_another_kind_of_object_is_found_and_named(file: str) -> None:
    with pytest.raises(CorruptDataError, match="kind") as caught:
        reader_of(file)(frame(b"ELSE", 1, b"{}"))
    assert caught.value.context["object_name"] == NAME


@pytest.mark.parametrize("file", FILES)
def test_a_newer_version_is_refused_with_what_to_do(file: str) -> None:
    data = bytearray((DATA / file).read_bytes())
    struct.pack_into(">H", data, 10, 9)
    struct.pack_into(">I", data, PREFIX_BYTES - 4, zlib.crc32(data[: PREFIX_BYTES - 4]))
    with pytest.raises(IncompatibleError, match="upgrade varvite") as caught:
        reader_of(file)(bytes(data))
    assert caught.value.context["object_name"] == NAME


@pytest.mark.parametrize("file", [*ENTRIES, *RECORDS, "pack.bin"])
@pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"kind":"other"}', b"\xff"])
def test_a_header_that_does_not_parse_is_found_and_named(file: str, header: bytes) -> None:
    kind = (DATA / file).read_bytes()[6:10]
    with pytest.raises(CorruptDataError, match="parse") as caught:
        reader_of(file)(frame(kind, 1, header))
    assert caught.value.context["object_name"] == NAME
