"""Kinds of option values: reading a value, and showing it as a user writes it.

A value comes as text (Spark's configuration, `spark-submit --conf`, a command line) or as a Python object (from code);
both are read by the same rules. Flink's spellings hold: `10 min`, `30s`, a bare number of milliseconds; `64 mb`, a bare
number of bytes, 1 kb is 1024 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from varvite.storage.errors import InvalidRequestError
from varvite.storage.named_objects import QUALIFIED_NAME
from varvite.storage.units import option_duration, option_size, parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from enum import Enum

PORT_MAX: Final = 65_535


@dataclass(frozen=True)
class OptionType:
    """A kind of values."""

    name: str
    """For the documentation."""
    read: Callable[[Any], Any]
    """Turns what a user wrote into the typed value. Raises `InvalidRequestError`."""
    show: Callable[[Any], str] = str
    """Spells a typed value as a user would write it."""
    metavar: str = "text"
    """Name of the value in the help of a command."""


def choice(*words: str) -> OptionType:
    """One of these words, in any case."""

    def read(value: Any) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            raise InvalidRequestError(f"{value!r} is unknown; use {' or '.join(words)}")
        return word

    return OptionType(_alternatives(words), read)


def word_or_name(*words: str, what: str) -> OptionType:
    """One of these words, or `module:qualified.name` of something of the user's.

    Args:
        words: In lower case.
        what: Kind of thing that is named, for messages: "a key provider".
    """

    def read(value: Any) -> str:
        text = read_text(value)
        if text.lower() in words:
            return text.lower()
        if QUALIFIED_NAME.fullmatch(text):
            return text
        raise InvalidRequestError(f"{value!r} is unknown; use {' or '.join(words)}, or module:qualified.name of {what}")

    return OptionType(_alternatives((*words, "module:qualified.name")), read)


def member_of(kind: type[Enum]) -> OptionType:
    """A member of an enum, by its name: in any case, with `-` or `_`."""

    def read(value: Any) -> Enum:
        if isinstance(value, kind):
            return value
        member = kind.__members__.get(read_text(value).upper().replace("-", "_"))
        if member is None:
            raise InvalidRequestError(f"{value!r} is unknown; use one of {', '.join(kind.__members__)}")
        return member

    return OptionType(_alternatives(kind.__members__), read, lambda member: member.name)


def number_above(limit: int) -> OptionType:
    """A finite number above the limit."""

    def read(value: Any) -> float:
        number = _number(value)
        if not limit < number < math.inf:
            raise InvalidRequestError(f"{value!r} is not a finite number above {limit}")
        return number

    return OptionType(f"number above {limit}", read, metavar="float")


def read_text(value: Any) -> str:
    """The text without blanks around it. Raises `InvalidRequestError` if it is none, or empty."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise InvalidRequestError(f"{value!r} is not a text, or an empty one")


def _alternatives(words: Iterable[str]) -> str:
    *first, last = (f"`{word}`" for word in words)
    return f"{', '.join(first)} or {last}" if first else last


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidRequestError(f"{value!r} is neither true nor false")


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        if isinstance(value, str):
            return int(value.strip())
    except ValueError:
        pass
    raise InvalidRequestError(f"{value!r} is not a whole number")


def _duration(value: Any) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return parse_duration_ms(read_text(value))


def _memory_size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return parse_size_bytes(read_text(value))


def _number(value: Any) -> float:
    """The number; not a number if it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def _fraction(value: Any) -> float:
    number = _number(value)
    if not 0 < number < 1:
        raise InvalidRequestError(f"{value!r} is not a number between 0 and 1")
    return number


def _is_path(value: Any) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")


def _url(value: Any) -> str:
    # Path objects too: a local directory is a location like any other.
    return read_text(value.__fspath__() if hasattr(value, "__fspath__") else value)


def _local_path(value: Any) -> Path:
    return Path(_url(value))


def _directories(value: Any) -> tuple[str, ...]:
    """Reads Flink's form, separated by commas, or a sequence."""
    parts = _url(value).split(",") if _is_path(value) else [_url(part) for part in value]
    directories = tuple(part.strip().removeprefix("file://") for part in parts)
    if not all(Path(directory).is_absolute() for directory in directories):
        raise InvalidRequestError(f"{value!r}: every directory must be an absolute local path")
    return directories


def _parameters(value: Any) -> dict[str, str]:
    """Reads Flink's form `key1:value1,key2:value2` (a value may contain `:`), or a mapping."""
    if isinstance(value, Mapping):
        return {str(key): str(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    pairs = [part.partition(":") for part in read_text(value).split(",")]
    if not all(colon and key.strip() for key, colon, _ in pairs):
        raise InvalidRequestError(f"{value!r} is no list of parameters; write it like key1:value1,key2:value2")
    return {key.strip(): item.strip() for key, _, item in pairs}


def _ports(value: Any) -> range:
    """Reads Flink's form of a reporter's port: one, or `first-last`."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    first, dash, last = text.partition("-")
    if first.isdecimal() and (not dash or last.isdecimal()):
        ports = range(int(first), int(last or first) + 1)
        if ports and ports[-1] <= PORT_MAX and (ports[0] > 0 or not dash):
            return ports
    raise InvalidRequestError(f"{value!r} is no port; use 0 to {PORT_MAX}, or a range like 9250-9260")


def _show_ports(ports: range) -> str:
    return f"{ports[0]}" if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"


def _show_parameters(parameters: Mapping[str, str]) -> str:
    return ",".join(map(":".join, parameters.items()))


BOOLEAN: Final = OptionType("boolean", _boolean, lambda value: str(value).lower(), "boolean")
INTEGER: Final = OptionType("integer", _integer, metavar="integer")
DURATION: Final = OptionType("duration", _duration, option_duration, "duration")
"""Typed value: milliseconds."""
MEMORY_SIZE: Final = OptionType("memory size", _memory_size, option_size, "size")
"""Typed value: bytes."""
FRACTION: Final = OptionType("number", _fraction, metavar="float")
"""Above 0 and below 1."""
STRING: Final = OptionType("string", read_text)
URL: Final = OptionType("URL or path", _url)
LOCAL_PATH: Final = OptionType("path", _local_path, metavar="path")
DIRECTORIES: Final = OptionType("paths, separated by commas", _directories, ",".join)
PARAMETERS: Final = OptionType("map `key:value,...`", _parameters, _show_parameters)
PORTS: Final = OptionType("port, or range `first-last`", _ports, _show_ports)
