"""The bytes of timers: they order as timers fire, and come back as what they were."""

from __future__ import annotations

import random

import pytest

from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.timer_form import TimerForm, due_end
from varvite.storage.errors import CorruptDataError

STRING = as_type(Types.STRING())
WINDOW = as_type(Types.TUPLE([Types.LONG(), Types.LONG()]))
TIMES = [-(2**63), -(2**32), -1, 0, 1, 255, 256, 2**32, 2**63 - 1]


@pytest.mark.parametrize("key", [None, "", "a", "x" * 300])
@pytest.mark.parametrize("time_ms", TIMES)
def test_a_timer_comes_back(key: str | None, time_ms: int) -> None:
    plain, named = TimerForm(STRING, None), TimerForm(STRING, WINDOW)
    assert plain.unpack(plain.pack(time_ms, key, None)) == (time_ms, key, None)
    for namespace in (None, (0, 10), (-1, None)):
        assert named.unpack(named.pack(time_ms, key, namespace)) == (time_ms, key, namespace)


def test_bytes_order_by_time_first() -> None:
    form = TimerForm(STRING, WINDOW)
    rows = [(time_ms, key, (0, 1)) for time_ms in TIMES for key in ("", "b", "zzzz")]
    packed = sorted(form.pack(*row) for row in random.Random(1).sample(rows, len(rows)))
    assert [form.unpack(row) for row in packed] == rows


@pytest.mark.parametrize("time_ms", TIMES[:-1])
def test_due_end_is_between_the_due_and_the_rest(time_ms: int) -> None:
    form = TimerForm(as_type(Types.LONG()), None)
    end = due_end(time_ms)
    assert end is not None
    assert form.pack(time_ms, -1, None) < end <= form.pack(time_ms + 1, None, None), "-1 has the highest first byte"


def test_all_timers_are_due_at_the_last_time() -> None:
    assert due_end(2**63 - 1) is None
    assert due_end(2**63 + 5) is None


def test_before_the_first_time_nothing_is_due() -> None:
    form = TimerForm(as_type(Types.LONG()), None)
    end = due_end(-(2**63) - 5)
    assert end is not None
    assert end < form.pack(-(2**63), -1, None)


@pytest.mark.parametrize("data", ["", "80" * 8, "80" * 8 + "a2", "80" * 8 + "a161" + "c0"])
def test_bytes_that_are_no_timer_are_refused(data: str) -> None:
    with pytest.raises(CorruptDataError):
        TimerForm(STRING, None).unpack(bytes.fromhex(data))


def test_a_timer_without_its_namespace_is_refused() -> None:
    with pytest.raises(CorruptDataError):
        TimerForm(STRING, WINDOW).unpack(TimerForm(STRING, None).pack(1, "a", None))
