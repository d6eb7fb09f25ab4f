"""Settings of the session, and query options told from those of a sink.

Levels, strongest first: code, query option, session conf. A key that a level does not set falls through to the next;
that makes booleans tri-state, as in Flink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.materializer.options.table import OPTIONS
from varvite.storage.clock import SystemTokens
from varvite.storage.options.declaration import CONF_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from varvite.storage.options.table import OptionLevel

_SHORT_PREFIX: Final = "varvite."
_MISSPELT_LIKENESS_MIN: Final = 1.0
"""An option of a sink that is at least so similar to a known key counts as misspelt."""


def session_properties(session: SparkSession) -> dict[str, str]:
    """All properties that are set in a session.

    PySpark's `conf.getAll` asks the JVM for each of them, and ends with an exception there, which costs most.
    """
    java: Any = getattr(session, "_jsparkSession", None)
    if java is None:  # Spark Connect, which is refused later
        return dict(session.conf.getAll)
    separator = SystemTokens().token()
    pairs = str(java.conf().getAll().mkString(separator)).split(separator)
    return {key: value for key, _, value in (pair.partition(" -> ") for pair in pairs if pair)}


def session_level(conf: Mapping[str, str]) -> OptionLevel:
    """The `spark.varvite.*` keys of a Spark configuration; other keys are not varvite's."""
    settings = {key.removeprefix(CONF_PREFIX): value for key, value in conf.items() if key.startswith(CONF_PREFIX)}
    return OPTIONS.read("session conf", settings, CONF_PREFIX)


def option_key(key: str) -> str | None:
    """The option that a query option's key means, without prefix; None if it is one of the sink's.

    Varvite's are keys with `spark.varvite.` or `varvite.` before them, and keys that begin with one of the sections of
    varvite's keys (`state.`, `execution.`, ...). Any other dotted key that is nearly one of varvite's counts as a
    misspelt one.

    Raises:
        InvalidRequestError: The key is nearly one of varvite's.
    """
    for prefix in (CONF_PREFIX, _SHORT_PREFIX):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    if "." not in key:
        return None
    if key.partition(".")[0] in OPTIONS.sections:
        return key
    if OPTIONS.nearest(key, _MISSPELT_LIKENESS_MIN) is not None:
        raise OPTIONS.unknown(key)
    return None
