"""One configuration option: its key, type, default and range, and the kinds of values that only jobs have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from varvite.materializer.restore.origin import CLONE, NO_CLAIM
from varvite.spark_integration.options.predefined_options import PredefinedOptions
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import LATEST, is_savepoint_name
from varvite.storage.job.log_store import FILESYSTEM
from varvite.storage.object_stores.encrypted.keys import ENVIRONMENT
from varvite.storage.options.kinds import OptionType, member_of, read_text, word_or_name

CONF_PREFIX: Final = "spark.varvite."
"""What stands before an option's key in Spark's configuration."""


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


def _claim_mode(given: Any) -> str:
    mode = read_text(given).upper()
    if mode in (NO_CLAIM, CLONE):
        return mode
    if mode in ("CLAIM", "LEGACY"):
        raise InvalidRequestError(
            f"{given!r} would let the job delete what it starts from; varvite copies the state and owns no source: "
            f"use {NO_CLAIM}, and delete the savepoint yourself when nobody needs it"
        )
    raise InvalidRequestError(f"{given!r} is unknown; use {NO_CLAIM} or {CLONE}")


BACKEND: Final = word_or_name("hashmap", "rocksdb", what="a factory of working stores")
LOG_STORAGE: Final = word_or_name(FILESYSTEM, what="a factory of log stores")
KEY_PROVIDER: Final = word_or_name(ENVIRONMENT, what="a key provider")
PREDEFINED_OPTIONS: Final = member_of(PredefinedOptions)
RESTORE_POINT: Final = OptionType("`latest`, a seq, or the name or location of a savepoint", _restore_point)
CLAIM_MODE: Final = OptionType(f"`{NO_CLAIM}` or `{CLONE}`", _claim_mode)
