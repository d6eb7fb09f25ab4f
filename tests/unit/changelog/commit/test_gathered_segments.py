"""Segments of many partitions in one object."""

from __future__ import annotations

import zlib

import pytest

from varvite.changelog.commit.batch_result import PartitionResult
from varvite.changelog.commit.gathered_segments import SEGMENT_BYTES_MAX, gather, share_bytes
from varvite.changelog.commit.pack import open_pack
from varvite.storage.format.layout import slot_of
from varvite.storage.format.records import ObjectSlice

EARLIER = ObjectSlice("seg/00000000000000000007/op/00001-tag-00000", 0, 9, 1)


def result(partition: int, **fields: object) -> PartitionResult:
    return PartitionResult(
        operator="op", partition=partition, low=partition, high=partition + 1, tag=f"{partition:032x}", **fields
    )  # type: ignore[arg-type]


def gathered(*results: PartitionResult, inline_max_bytes: int = 0):  # noqa: ANN201
    return gather(results, slot=7, job_id="job", token=lambda: "t" * 32, inline_max_bytes=inline_max_bytes)


def test_what_fits_into_the_entry_stays_there() -> None:
    assert gathered(result(0, inline=b"abc", image=b"de"), inline_max_bytes=5) is None
    assert gathered(result(0), result(1)) is None


def test_every_segment_and_image_is_a_slice_of_the_one_object() -> None:
    made = gathered(
        result(1, inline=b"second", uploaded=(EARLIER,), mutations=3),
        result(0, inline=b"first", image=b"image"),
        result(2, image=b"image"),
        result(3),
        inline_max_bytes=10,
    )
    assert made is not None
    assert slot_of(made.name) == ("seg", 7)
    assert open_pack(made.body, made.name).header.slot == 7
    first, second, third, fourth = made.results
    for place, data in (
        (first.uploaded[0], b"first"),
        (first.image_uploaded, b"image"),
        (second.uploaded[1], b"second"),
    ):
        assert place is not None
        assert made.body[place.offset : place.offset + place.length] == data
        assert (place.name, place.crc32) == (made.name, zlib.crc32(data))
    assert second.uploaded[0] == EARLIER
    assert third.image_uploaded == first.image_uploaded
    assert fourth == result(3)
    assert {(r.inline, r.image) for r in made.results} == {(b"", b"")}
    assert second.mutations == 3
    assert made.body.count(b"image") == 1


@pytest.mark.parametrize(
    ("tasks", "share"),
    [(1, 4 << 20), (4, SEGMENT_BYTES_MAX), (8, SEGMENT_BYTES_MAX), (200, (10 << 20) // 200), (0, 4 << 20)],
)
def test_the_share_of_a_partition(tasks: int, share: int) -> None:
    assert share_bytes(tasks, 4 << 20, 10 << 20) == share


def test_nothing_is_gathered_if_it_is_switched_off() -> None:
    assert share_bytes(200, 4 << 20, 0) == (4 << 20) // 200
