"""The decision about heartbeats is made once for a checkpoint location."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from varvite.spark_integration.connectors.heartbeats.source_marker import (
    MARKER,
    QuerySources,
    encode_sources,
    settle_heartbeat,
)
from varvite.storage.errors import CorruptDataError, InvalidRequestError


class Location:
    """A checkpoint location in a dict."""

    def __init__(self, *, offsets: bool = False, marker: bytes | None = None) -> None:
        self.files = {MARKER: marker} if marker is not None else {}
        if offsets:
            self.files["offsets/0"] = b"v1"

    def url(self, name: str) -> str:
        return f"memory://{name}"

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def create(self, name: str, data: bytes) -> bool:
        return self.files.setdefault(name, data) is data

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def list_names(self, name: str = "") -> Iterator[str]:
        return (file.rpartition("/")[2] for file in self.files if file.startswith(f"{name}/"))


HEARTBEAT = encode_sources(QuerySources(heartbeat=True))


@pytest.mark.parametrize(
    ("option", "has_timers", "expected"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
@pytest.mark.parametrize("marker", [None, HEARTBEAT, b"torn"])
def test_a_location_without_a_batch_is_decided_anew(
    marker: bytes | None, option: bool | None, has_timers: bool, expected: bool
) -> None:
    location = Location(marker=marker)
    assert settle_heartbeat(location, {}, option=option, has_timers=has_timers) is expected
    location.files["offsets/0"] = b"v1"
    assert settle_heartbeat(location, {}, option=None, has_timers=not has_timers) is expected


@pytest.mark.parametrize("marker", [None, HEARTBEAT])
def test_a_setting_that_contradicts_the_location_is_an_error(marker: bytes | None) -> None:
    location = Location(offsets=True, marker=marker)
    has = marker is not None
    assert settle_heartbeat(location, {}, option=has, has_timers=True) is has
    with pytest.raises(InvalidRequestError, match="checkpointLocation"):
        settle_heartbeat(location, {}, option=not has, has_timers=True)


def test_timers_without_heartbeats_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not settle_heartbeat(Location(offsets=True), {}, option=None, has_timers=False)
        assert not caplog.records
        assert not settle_heartbeat(Location(offsets=True), {}, option=None, has_timers=True)
    assert "timers fire only in batches that have input" in caplog.text


def test_a_damaged_marker_of_a_location_in_use_is_an_error() -> None:
    with pytest.raises(CorruptDataError):
        settle_heartbeat(Location(offsets=True, marker=HEARTBEAT[:-1]), {}, option=None, has_timers=True)
