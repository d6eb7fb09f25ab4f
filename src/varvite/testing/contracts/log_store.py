"""The claims about a `LogStore`."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from varvite.storage.errors import CorruptDataError, InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.job.log_store import LogObjects, LogStore, check_log

NAMES = tuple(layout.segment(slot, "op/ä", 1, "f" * 32, 0) for slot in (3, 4, 11))


def names(log: LogStore, prefix: str, start_after: str = "") -> list[str]:
    """The names of a listing."""
    return [meta.name for meta in log.list(prefix, start_after=start_after)]


class LogStoreContract:
    """The behavior of a log store that varvite relies on. Override `log`."""

    @pytest.fixture
    def log(self) -> LogStore:
        """A new, empty log of one job; the test's own."""
        raise NotImplementedError("override the fixture `log`: it returns a new, empty log store")

    def test_it_is_a_log_store(self, log: LogStore) -> None:
        assert isinstance(log, LogStore)
        assert "://" in log.url

    def test_what_was_put_is_read_whole_and_by_ranges(self, log: LogStore) -> None:
        data = random.Random(1).randbytes(10_000)
        for body in (data, b""):
            log.put(NAMES[0], body)
            assert log.get(NAMES[0]) == body
        log.put(NAMES[0], data)
        assert log.get_range(NAMES[0], 990, 7000) == data[990:7990]
        assert log.get_range(NAMES[0], 10_000, 0) == b""
        for offset, length in ((9_999, 2), (10_001, 0)):
            with pytest.raises(CorruptDataError):
                log.get_range(NAMES[0], offset, length)
        with pytest.raises(InvalidRequestError):
            log.get_range(NAMES[0], -1, 1)

    def test_putting_the_same_again_is_harmless(self, log: LogStore) -> None:
        """An upload that is slow is joined by a second attempt."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: log.put(NAMES[0], b"x" * 1000), range(8)))
        assert log.get(NAMES[0]) == b"x" * 1000
        assert names(log, layout.SEGMENTS) == [NAMES[0]]

    def test_a_listing_is_in_order_with_sizes_and_sees_everything_at_once(self, log: LogStore) -> None:
        assert names(log, layout.SEGMENTS) == []
        for number, name in enumerate(reversed(NAMES)):
            log.put(name, b"x" * number)
        log.put(layout.pack(4, "f" * 32), b"pack")
        assert [meta[:2] for meta in log.list(layout.SEGMENTS)] == [(NAMES[0], 2), (NAMES[1], 1), (NAMES[2], 0)]
        assert names(log, layout.SEGMENTS, start_after=NAMES[0]) == [NAMES[1], NAMES[2]]
        assert len(names(log, "")) == 4
        log.delete([NAMES[1], layout.segment(9, "op", 0, "none", 0)])
        assert names(log, layout.SEGMENTS) == [NAMES[0], NAMES[2]]
        log.delete(iter([NAMES[0]]))
        assert names(log, layout.SEGMENTS) == [NAMES[2]]

    def test_what_is_missing_is_named(self, log: LogStore, tmp_path: Path) -> None:
        asks = (log.get, lambda n: log.get_range(n, 0, 1), lambda n: log.get_file(n, tmp_path / "out"))
        for ask in asks:
            with pytest.raises(MissingObjectError) as raised:
                ask(NAMES[0])
            assert str(raised.value.context["object_name"]).endswith(NAMES[0])
        assert not (tmp_path / "out").exists()

    def test_files_go_in_and_out(self, log: LogStore, tmp_path: Path) -> None:
        data = random.Random(2).randbytes(300_000)
        (tmp_path / "in").write_bytes(data)
        log.put_file(NAMES[0], tmp_path / "in")
        log.get_file(NAMES[0], tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == data == log.get(NAMES[0])
        with pytest.raises(InvalidRequestError):
            log.put_file(NAMES[1], tmp_path / "none")

    def test_names_are_checked(self, log: LogStore) -> None:
        for name in ("", "../a", "a/", "a//b"):
            with pytest.raises(InvalidRequestError):
                log.put(name, b"x")

    def test_the_preflight_passes_and_leaves_nothing(self, log: LogStore) -> None:
        objects = log if hasattr(log, "put_if_absent") else LogObjects(log)
        check_log(objects, "a" * 32)  # type: ignore[arg-type]
        assert names(log, "") == []
