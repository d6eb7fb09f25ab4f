"""`ConfigOption`: the one declaration of an option, and what configurations derive from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from varvite.storage.options.kinds import OptionType

CONF_PREFIX: Final = "spark.varvite."
"""Precedes an option's key in Spark's configuration."""
_METADATA: Final = "varvite.option"


@dataclass(frozen=True, kw_only=True)
class ConfigOption:
    """One option.

    Attributes:
        key: Without `spark.varvite.`; Flink's name where Flink has the option.
        type: Kind of its values.
        default: Typed value; None: not set.
        description: What it does, and what a larger or smaller value costs. The page and `--help` show it.
        unset: What holds while it is not set, if it has no default: "no limit".
        at_least: Smallest allowed value, inclusive.
        at_most: Largest allowed value, inclusive.
        deprecated_keys: Older names that still work, after the current one.
        command_name: Its name on the command line of `varvite materialize`; None: it has none there.
    """

    key: str
    type: OptionType
    default: Any = None
    description: str
    unset: str = ""
    at_least: int | None = None
    at_most: int | None = None
    deprecated_keys: tuple[str, ...] = ()
    command_name: str | None = None

    def read(self, value: Any) -> Any:
        """The typed value. Raises `InvalidRequestError` that names the key."""
        try:
            return self.read_value(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"option {self.key}: {error.message}") from None

    def read_value(self, value: Any) -> Any:
        """The typed value. Raises `InvalidRequestError`, without the key, for where that is known."""
        typed = self.type.read(value)
        if self.at_least is not None and typed < self.at_least:
            raise InvalidRequestError(f"{value!r} is too small; use at least {self.type.show(self.at_least)}")
        if self.at_most is not None and typed > self.at_most:
            raise InvalidRequestError(f"{value!r} is too large; use at most {self.type.show(self.at_most)}")
        return typed

    def field(self, *, default: Any = dataclasses.MISSING, repr: bool = True) -> Any:  # noqa: A002  as in dataclasses
        """A field of a dataclass that this option sets, and `check_options` checks.

        Args:
            default: Of the field; missing: the option's.
            repr: As in dataclasses.
        """
        default = self.default if default is dataclasses.MISSING else default
        return dataclasses.field(default=default, repr=repr, metadata={_METADATA: self})

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

    @property
    def help_text(self) -> str:
        """Description and default for `--help`."""
        default = self.default_text or self.unset
        return self.description.replace("`", "") + (f" [default: {default}]" if default else "")


def options_of(config: type[Any]) -> dict[str, ConfigOption]:
    """Field name → option, of the fields of a dataclass that options set."""
    fields = dataclasses.fields(config)
    return {field.name: field.metadata[_METADATA] for field in fields if _METADATA in field.metadata}


def check_options(config: object) -> None:
    """Raise `InvalidRequestError` if a field of this dataclass has a value that its option refuses.

    None passes, and so does the default.
    """
    for name, option in options_of(type(config)).items():
        value = getattr(config, name)
        if value is not None and value != option.default:
            option.read(value)


def declared_in(*modules: ModuleType) -> tuple[ConfigOption, ...]:
    """The options that are constants of these modules, in the order of their declaration."""
    values: Iterable[Any] = (value for module in modules for value in vars(module).values())
    return tuple(value for value in values if isinstance(value, ConfigOption))
