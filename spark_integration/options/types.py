"""One configuration option: its key, type, default and range, and how a given value is read.

A value comes as text (Spark's configuration, `spark-submit --conf`) or as a Python object (from code); both are read by
the same rules. Flink's spellings hold: `10 min`, `30s`, a bare number of milliseconds; `64 mb`, a bare number of bytes,
1 kb is 1024 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from varvite.materializer.options.materializer_config import PORT_MAX
from varvite.materializer.options.units import parse_duration_ms, parse_size_bytes
from varvite.materializer.restore.origin import CLONE, NO_CLAIM
from varvite.spark_integration.options.predefined_options import PredefinedOptions
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import LATEST, is_savepoint_name
from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.named_objects import QUALIFIED_NAME
from varvite.storage.object_stores.encrypted.keys import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable

CONF_PREFIX: Final = "spark.varvite."
"""What stands before an option's key in Spark's configuration."""
_SIZES: Final = ((1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb"))
_BACKENDS: Final = ("hashmap", "rocksdb")
_DURATIONS: Final = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True)
class OptionType:
    """How the values of an option are read and shown."""

    name: str
    """For the documentation; with the unit of the value that is kept."""
    read: Callable[[Any], Any]
    """The typed value of what was given. Raises `InvalidRequestError`."""
    show: Callable[[Any], str] = str
    """A typed value as the user would write it."""


@dataclass(frozen=True, kw_only=True)
class ConfigOption:
    """One option.

    Attributes:
        key: Without `spark.varvite.`; Flink's name where Flink has the option.
        type: How its value is read.
        default: Typed value; None: not set.
        description: What it does and what a larger or smaller value costs; one or two sentences.
        field: Name of the field that it sets.
        at_least: Smallest allowed value, inclusive.
        at_most: Largest allowed value, inclusive.
        deprecated_keys: Older names that still work, after the current one.
    """

    key: str
    type: OptionType
    default: Any
    description: str
    field: str
    at_least: int | None = None
    at_most: int | None = None
    deprecated_keys: tuple[str, ...] = ()

    def read(self, given: Any) -> Any:
        """The typed value of what was given. Raises `InvalidRequestError` that names the key."""
        try:
            value = self.type.read(given)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"option {self.key}: {error.message}") from None
        if self.at_least is not None and value < self.at_least:
            raise InvalidRequestError(f"option {self.key} is {given!r}; use at least {self.type.show(self.at_least)}")
        if self.at_most is not None and value > self.at_most:
            raise InvalidRequestError(f"option {self.key} is {given!r}; use at most {self.type.show(self.at_most)}")
        return value

    @property
    def range_text(self) -> str:
        """The allowed range as text; empty if there is none."""
        low = "" if self.at_least is None else self.type.show(self.at_least)
        high = "" if self.at_most is None else self.type.show(self.at_most)
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else f"at most {high}" if high else ""

    @property
    def default_text(self) -> str:
        """The default as the user would write it; empty if there is none."""
        return "" if self.default is None else self.type.show(self.default)


def _boolean(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in ("true", "false"):
        return given.strip().lower() == "true"
    raise InvalidRequestError(f"{given!r} is neither true nor false")


def _integer(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        if isinstance(given, str):
            return int(given.strip())
    except ValueError:
        pass
    raise InvalidRequestError(f"{given!r} is not a whole number")


def _duration(given: Any) -> int:
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    return parse_duration_ms(_text(given))


def _memory_size(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    return parse_size_bytes(_text(given))


def _text(given: Any) -> str:
    if isinstance(given, str) and given.strip():
        return given.strip()
    raise InvalidRequestError(f"{given!r} is not a text, or an empty one")


def _url(given: Any) -> str:
    # Path objects too: a local directory is a location like any other.
    return _text(given if isinstance(given, str) else given.__fspath__() if hasattr(given, "__fspath__") else given)


def _directories(given: Any) -> tuple[str, ...]:
    """Flink's form: separated by commas; or a sequence."""
    parts = (
        _url(given).split(",") if isinstance(given, str) or hasattr(given, "__fspath__") else [_url(p) for p in given]
    )
    found = tuple(part.strip().removeprefix("file://") for part in parts)
    if not all(Path(part).is_absolute() for part in found):
        raise InvalidRequestError(f"{given!r}: every directory must be an absolute local path")
    return found


def _parameters(given: Any) -> dict[str, str]:
    """Flink's form `key1:value1,key2:value2` (a value may contain `:`), or a mapping."""
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    pairs = [part.partition(":") for part in _text(given).split(",")]
    if not all(colon and key.strip() for key, colon, _ in pairs):
        raise InvalidRequestError(f"{given!r} is no list of parameters; write it like key1:value1,key2:value2")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _restore_point(given: Any) -> str | int:
    text = str(given).strip() if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
    if text.lower() == LATEST:
        return LATEST
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if "/" in text or is_savepoint_name(text):
        return text
    raise InvalidRequestError(
        f"{given!r} names no checkpoint; use 'latest', the seq of a checkpoint (1, 2, ...), the name of a savepoint, "
        "or the location of a savepoint or of another job's checkpoint"
    )


def _ports(given: Any) -> range:
    """Flink's form of a reporter's port: one, or `first-last`."""
    text = str(given).strip() if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
    first, dash, last = text.partition("-")
    if first.isdecimal() and (not dash or last.isdecimal()):
        found = range(int(first), int(last or first) + 1)
        if found and found[-1] <= PORT_MAX and (found[0] > 0 or not dash):
            return found
    raise InvalidRequestError(f"{given!r} is no port; use 0 to {PORT_MAX}, or a range like 9250-9260")


def _show_ports(ports: range) -> str:
    return f"{ports[0]}" if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"


def _claim_mode(given: Any) -> str:
    mode = _text(given).upper()
    if mode in (NO_CLAIM, CLONE):
        return mode
    if mode in ("CLAIM", "LEGACY"):
        raise InvalidRequestError(
            f"{given!r} would let the job delete what it starts from; varvite copies the state and owns no source: "
            f"use {NO_CLAIM}, and delete the savepoint yourself when nobody needs it"
        )
    raise InvalidRequestError(f"{given!r} is unknown; use {NO_CLAIM} or {CLONE}")


def _show_in(units: tuple[tuple[int, str], ...], smallest: str) -> Callable[[int], str]:
    def show(value: int) -> str:
        for size, unit in units:
            if value and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} {smallest}"

    return show


def _fraction(given: Any) -> float:
    try:
        value = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < 1:
        raise InvalidRequestError(f"{given!r} is not a number between 0 and 1")
    return value


def _positive(given: Any) -> float:
    try:
        value = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidRequestError(f"{given!r} is not a number above 0")
    return value


def _backend(given: Any) -> str:
    text = _text(given)
    if text.lower() in _BACKENDS:
        return text.lower()
    if QUALIFIED_NAME.fullmatch(text):
        return text
    raise InvalidRequestError(
        f"{given!r} is unknown; use {' or '.join(_BACKENDS)}, or module:qualified.name of a factory of working stores"
    )


def _key_provider(given: Any) -> str:
    text = _text(given)
    if text.lower() == ENVIRONMENT:
        return ENVIRONMENT
    if QUALIFIED_NAME.fullmatch(text):
        return text
    raise InvalidRequestError(f"{given!r} is unknown; use {ENVIRONMENT}, or module:qualified.name of a key provider")


def _log_storage(given: Any) -> str:
    text = _text(given)
    if text.lower() == FILESYSTEM:
        return FILESYSTEM
    if QUALIFIED_NAME.fullmatch(text):
        return text
    raise InvalidRequestError(f"{given!r} is unknown; use {FILESYSTEM}, or module:qualified.name of a factory")


def _predefined(given: Any) -> PredefinedOptions:
    if isinstance(given, PredefinedOptions):
        return given
    found = PredefinedOptions.__members__.get(_text(given).upper().replace("-", "_"))
    if found is None:
        raise InvalidRequestError(f"{given!r} is unknown; use one of {', '.join(PredefinedOptions.__members__)}")
    return found


def choice(*allowed: str) -> OptionType:
    """One of some words."""

    def read(given: Any) -> str:
        word = given.strip().lower() if isinstance(given, str) else given
        if word not in allowed:
            raise InvalidRequestError(f"{given!r} is unknown; use {' or '.join(allowed)}")
        return word

    return OptionType(" or ".join(f"`{word}`" for word in allowed), read)


BOOLEAN: Final = OptionType("boolean", _boolean, lambda value: str(value).lower())
INTEGER: Final = OptionType("integer", _integer)
DURATION: Final = OptionType("duration", _duration, _show_in(_DURATIONS, "ms"))
"""Kept in milliseconds."""
MEMORY_SIZE: Final = OptionType("memory size", _memory_size, _show_in(_SIZES, "bytes"))
"""Kept in bytes."""
FRACTION: Final = OptionType("number", _fraction)
POSITIVE_NUMBER: Final = OptionType("number above 0", _positive)
BACKEND: Final = OptionType("`hashmap`, `rocksdb` or `module:qualified.name`", _backend)
LOG_STORAGE: Final = OptionType(f"`{FILESYSTEM}` or `module:qualified.name`", _log_storage)
KEY_PROVIDER: Final = OptionType(f"`{ENVIRONMENT}` or `module:qualified.name`", _key_provider)
PREDEFINED_OPTIONS: Final = OptionType(
    " or ".join(f"`{name}`" for name in PredefinedOptions.__members__), _predefined, lambda value: value.name
)
STRING: Final = OptionType("string", _text)
URL: Final = OptionType("URL or path", _url)
DIRECTORIES: Final = OptionType("paths, separated by commas", _directories, ",".join)
PARAMETERS: Final = OptionType("map `key:value,...`", _parameters, lambda value: ",".join(map(":".join, value.items())))
RESTORE_POINT: Final = OptionType("`latest`, a seq, or the name or location of a savepoint", _restore_point)
PORTS: Final = OptionType("port, or range `first-last`", _ports, _show_ports)
CLAIM_MODE: Final = OptionType(f"`{NO_CLAIM}` or `{CLONE}`", _claim_mode)
