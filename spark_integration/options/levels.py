"""From given keys and values to typed options: which keys are varvite's, aliases, precedence, and errors that help.

Levels, strongest first: code, query option, session conf. A key that a level does not set falls through to the next;
that makes booleans tri-state, as in Flink.
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from varvite.spark_integration.options.job_options import CURRENT_KEYS, OPTIONS, STORAGE_OPTION_PREFIX
from varvite.spark_integration.options.types import CONF_PREFIX
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.table import read_storage_option

if TYPE_CHECKING:
    from collections.abc import Mapping

_log: Final = logging.getLogger(__name__)
_SHORT_PREFIX: Final = "varvite."
_SECTIONS: Final = frozenset(key.partition(".")[0] for key in [*OPTIONS, *CURRENT_KEYS, STORAGE_OPTION_PREFIX])
_SUGGESTED: Final = 0.7
"""How like an unknown key a known one must be to be suggested."""
_SLIP: Final = 1.0
"""How like a known key an option of the sink must be to count as a slip of the pen."""
_SAME_ENDING: Final = 0.2


@dataclass(frozen=True)
class OptionLevel:
    """Typed values that one level sets, by current key; free-form storage options by their own names."""

    name: str
    """For people: code, query option or session conf."""
    values: Mapping[str, Any] = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)


def read_level(name: str, given: Mapping[str, Any], shown_prefix: str = "") -> OptionLevel:
    """The options that one level sets.

    Args:
        name: For people.
        given: Keys without `spark.varvite.`; None as a value means not set.
        shown_prefix: What the user wrote before each key.

    Raises:
        InvalidRequestError: An unknown key, with the nearest known one, or a value that does not fit.
    """
    values: dict[str, Any] = {}
    storage_options: dict[str, Any] = {}
    # Deprecated keys first, so that the current key wins where both are given.
    for key in sorted(given, key=lambda key: key not in CURRENT_KEYS):
        value = given[key]
        if key.startswith(STORAGE_OPTION_PREFIX) and key != STORAGE_OPTION_PREFIX:
            if value is not None:
                storage_options[key.removeprefix(STORAGE_OPTION_PREFIX)] = read_storage_option(key, value)
            continue
        current = CURRENT_KEYS.get(key, key)
        if current not in OPTIONS:
            raise unknown_option(key, shown_prefix)
        if current != key:
            _log.warning("option %s%s is deprecated; use %s%s", shown_prefix, key, shown_prefix, current)
        if value is not None:
            values[current] = OPTIONS[current].read(value)
    return OptionLevel(name, values, storage_options)


def unknown_option(key: str, shown_prefix: str = "") -> InvalidRequestError:
    """The error for a key that does not exist, with the nearest known one."""
    near = _nearest(key, _SUGGESTED)
    if near is None and key.startswith(STORAGE_OPTION_PREFIX.rstrip(".")):
        near = STORAGE_OPTION_PREFIX + "<name>"
    advice = f"did you mean {shown_prefix}{near}?" if near else "docs/reference/configuration.md lists all options"
    return InvalidRequestError(f"{shown_prefix}{key} is no option of varvite; {advice}")


def _nearest(key: str, at_least: float) -> str | None:
    """The current key that is most like this one; a common last part counts, as people leave sections out."""

    def likeness(known: str) -> float:
        same_ending = known.rpartition(".")[2] == key.lower().rpartition(".")[2]
        return difflib.SequenceMatcher(None, key.lower(), known).ratio() + (_SAME_ENDING if same_ending else 0.0)

    best = max([*OPTIONS, *CURRENT_KEYS], key=likeness)
    return CURRENT_KEYS.get(best, best) if likeness(best) >= at_least else None


def session_level(conf: Mapping[str, str]) -> OptionLevel:
    """The `spark.varvite.*` keys of a Spark configuration; other keys are not varvite's."""
    given = {key.removeprefix(CONF_PREFIX): value for key, value in conf.items() if key.startswith(CONF_PREFIX)}
    return read_level("session conf", given, CONF_PREFIX)


def own_key(key: str) -> str | None:
    """The option that a query option's key means, without prefix; None if it is one of the sink's.

    Varvite's are keys with `spark.varvite.` or `varvite.` before them, and keys that begin with one of the sections of
    varvite's keys (`state.`, `execution.`, ...). Any other dotted key that is nearly one of varvite's is taken for a
    slip.

    Raises:
        InvalidRequestError: Such a slip.
    """
    for prefix in (CONF_PREFIX, _SHORT_PREFIX):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    if "." not in key:
        return None
    if key.partition(".")[0] in _SECTIONS:
        return key
    if _nearest(key, _SLIP) is not None:
        raise unknown_option(key)
    return None
