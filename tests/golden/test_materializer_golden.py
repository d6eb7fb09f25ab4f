"""Messages of materializers to each other and to other programs stay readable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from varvite.materializer.monitoring.events import (
    Adopted,
    Collected,
    Event,
    Failed,
    JobFailed,
    LogSize,
    Materialized,
    Overdue,
    Waiting,
    decode_event,
    encode_event,
)
from varvite.materializer.service.demand import Request, decode_request, encode_request
from varvite.materializer.service.sharing import decode_heartbeat, encode_heartbeat
from varvite.materializer.standby.record import OperatorCopies, StandbyRecord, decode_standby, encode_standby
from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import frame

DATA = Path(__file__).parent / "data"
LOG = LogSize(batches=3, segments=2, bytes=100)
RANGE = {"job": "flights", "time_ms": 1_700_000_000_000, "operator": "per-plane", "low": 0, "high": 64}
JOB = {"job": "flights", "time_ms": 1_700_000_000_000}
EVENTS: list[Event] = [
    Materialized(
        **RANGE, trigger="interval", snapshot=7, base_seq=10, at_seq=20, at_batch=18, batches=10, mutations=400,
        uploaded_files=4, uploaded_bytes=9_000, reused_files=2, reused_bytes=70_000, log_before=LOG,
        log_after=LogSize(batches=0, segments=0, bytes=0), duration_ms=85,
    ),
    Adopted(**RANGE, snapshot=7, at_seq=20, log=LOG),
    Failed(
        **RANGE, error="checksum mismatch", error_type="CorruptDataError", object_name="seg/x", failures=4,
        failing=True, retry_ms=8_000,
    ),
    Collected(**JOB, deleted=9, entries=3, segments=4, snapshot_files=1, cut=20, duration_ms=12),
    JobFailed(
        **JOB, step="following the chain", error="no answer", error_type="DidNotHappenError", object_name=None,
        failures=1, retry_ms=1_000,
    ),
    Waiting(**JOB, message="job flights does not exist yet"),
]  # fmt: skip
STANDBY = StandbyRecord(
    job_id="0123456789abcdef0123456789abcdef",
    host="node-7",
    names=("node-7", "10.0.0.7"),
    counter=42,
    operators=(
        OperatorCopies(operator="per-plane/ä", parallelism=8, copies=((0, 2, 120), (4, 5, 119)), in_use=((2, 4),)),
        OperatorCopies(operator="totals", parallelism=1),
    ),
)
LATER: list[Event] = [Overdue(**RANGE, reason="3120 log batches", failures=2)]
"""Kinds that came later; their golden lines are in a file of their own."""


def test_golden_events_are_read_and_written_as_ever() -> None:
    lines = (DATA / "materializer-events-v1.jsonl").read_bytes().splitlines(keepends=True)
    assert [decode_event(line) for line in lines] == EVENTS
    assert [encode_event(event) for event in EVENTS] == lines
    line = (DATA / "materializer-events-v1-overdue.jsonl").read_bytes()
    assert [decode_event(line)] == LATER
    assert [encode_event(event) for event in LATER] == [line]


def test_every_kind_of_event_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/formats/materializer-events.md").read_text()
    for event in (*EVENTS, *LATER):
        fields = msgspec.to_builtins(event)
        assert f"`{fields['event']}`" in page
        assert [name for name in fields if f"`{name}`" not in page] == []


def test_the_golden_heartbeat_is_read_and_written_as_ever() -> None:
    data = (DATA / "member-v1.bin").read_bytes()
    assert decode_heartbeat(data, "members/m") == ("m", 42)
    assert encode_heartbeat("m", 42) == data


def test_the_golden_request_is_read_and_written_as_ever() -> None:
    data, request = (DATA / "request-v2.bin").read_bytes(), Request(1_700_000_000_000, 4 * "01234567")
    assert encode_request(request) == data
    assert decode_request(data) == request


def test_the_first_golden_request_is_still_read() -> None:
    assert decode_request((DATA / "request-v1.bin").read_bytes()) == Request(1_700_000_000_000)


def test_what_is_no_request_is_an_error() -> None:
    with pytest.raises(CorruptDataError, match="the request"):
        decode_request(frame(b"MREQ", 2, b'{"created_ms": "soon"}'))


@pytest.mark.parametrize("position", range(0, 44, 3))
def test_a_changed_byte_of_a_heartbeat_is_noticed(position: int) -> None:
    data = bytearray((DATA / "member-v1.bin").read_bytes())
    data[position] ^= 1
    with pytest.raises(CorruptDataError) as raised:
        decode_heartbeat(bytes(data), "members/m")
    assert raised.value.context["object_name"] == "members/m"


def test_the_golden_record_of_a_standby_is_read_and_written_as_ever() -> None:
    data = (DATA / "standby-v1.bin").read_bytes()
    assert decode_standby(data, "standbys/node-7") == STANDBY
    assert encode_standby(STANDBY) == data


@pytest.mark.parametrize("position", range(0, 284, 11))
def test_a_changed_byte_of_a_standbys_record_is_noticed(position: int) -> None:
    data = bytearray((DATA / "standby-v1.bin").read_bytes())
    data[position] ^= 1
    with pytest.raises(CorruptDataError) as raised:
        decode_standby(bytes(data), "standbys/node-7")
    assert raised.value.context["object_name"] == "standbys/node-7"
