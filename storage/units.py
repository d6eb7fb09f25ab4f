"""Durations, sizes and times as text: Flink's spellings in options (`10 min`, `64 mb`), and what people read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


_AMOUNT: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")
_MS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib"), 1 << 40),
}


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration like `10 min`; a bare number is milliseconds. Raises `InvalidRequestError`."""
    return _parse(text, _MS, "a duration", "10 min, 30s, 500 ms")


def parse_size_bytes(text: str) -> int:
    """Bytes of a size like `64 mb` (Flink's units: 1 kb is 1024 bytes). Raises `InvalidRequestError`."""
    return _parse(text, _BYTES, "a size", "64 mb, 1g, 4096")


def format_duration_ms(duration_ms: float) -> str:
    """A duration for people: `850 ms`, `12.3 s`, `10.0 min`."""
    if duration_ms < _MS["s"]:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 2 * _MS["min"]:
        return f"{duration_ms / _MS['s']:.1f} s"
    return f"{duration_ms / _MS['min']:.1f} min"


def format_size_bytes(size_bytes: float) -> str:
    """A size for people: `12 B`, `3.4 KiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= _BYTES[unit.lower()]:
            return f"{size_bytes / _BYTES[unit.lower()]:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def option_duration(duration_ms: int) -> str:
    """The exact duration in the form that an option takes: `10 min`."""
    return _spell(duration_ms, _MS, ("d", "h", "min", "s", "ms"))


def option_size(size_bytes: int) -> str:
    """The exact size in the form that an option takes: `64 mb`."""
    return _spell(size_bytes, _BYTES, ("tb", "gb", "mb", "kb", "b"))


def _spell(amount: int, units: Mapping[str, int], names: tuple[str, ...]) -> str:
    largest = next((name for name in names if amount and amount % units[name] == 0), names[-1])
    return f"{amount // units[largest]} {largest}"


def _parse(text: str, units: Mapping[str, int], what: str, examples: str) -> int:
    match = _AMOUNT.fullmatch(text)
    unit = units.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidRequestError(f"{text!r} is not {what}; write it like {examples}")
    return int(match[1]) * unit


def utc_time(time_ms: int) -> str:
    """A time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
