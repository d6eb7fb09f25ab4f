"""`OptionTable`: from keys and values to typed options, with older keys, and errors that suggest the right key."""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import options_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from varvite.storage.options.declaration import ConfigOption

_log: Final = logging.getLogger(__name__)
STORAGE_OPTION_PREFIX: Final = "storage.option."
"""Free-form: `storage.option.<name>` goes to fsspec as option `<name>` of the storage's filesystem."""
SUGGESTION_LIKENESS_MIN: Final = 0.7
"""An unknown key must be at least so similar to a known one for that to be suggested."""
_SAME_ENDING: Final = 0.2
"""Added to the similarity of keys with the same last part, because people leave sections out."""


@dataclass(frozen=True)
class OptionLevel:
    """Typed values that one level sets, by current key; free-form storage options by their own names."""

    name: str
    """For people: code, query option or session conf."""
    values: Mapping[str, Any] = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)


class OptionTable:
    """All options that can be set."""

    def __init__(self, options: Iterable[ConfigOption]) -> None:
        self.options: Final[Mapping[str, ConfigOption]] = {option.key: option for option in options}
        """By current key."""
        self.current_keys: Final[Mapping[str, str]] = {
            older: option.key for option in self.options.values() for older in option.deprecated_keys
        }
        """Older key → current key."""
        self.sections: Final = frozenset(key.partition(".")[0] for key in [*self._keys, STORAGE_OPTION_PREFIX])
        """First parts of all keys."""

    def __contains__(self, key: str) -> bool:
        """True if the key, current or older, is an option's; false for storage options."""
        return key in self.options or key in self.current_keys

    def read(
        self,
        name: str,
        settings: Mapping[str, Any],
        shown_prefix: str = "",
        *,
        only: Collection[ConfigOption] | None = None,
    ) -> OptionLevel:
        """The options that one level sets.

        Args:
            name: Of the level, for people.
            settings: Keys without `spark.varvite.`; None as a value means not set.
            shown_prefix: Prefix of each key as the user wrote it.
            only: Options whose values are read; others must exist, but their values are ignored. None: all.

        Raises:
            InvalidRequestError: An unknown key, with the nearest known one, or a value that does not fit.
        """
        values: dict[str, Any] = {}
        storage_options: dict[str, Any] = {}
        # Older keys first, so that the current key wins where both are set.
        for key in sorted(settings, key=lambda key: key not in self.current_keys):
            value = settings[key]
            if key.startswith(STORAGE_OPTION_PREFIX) and key != STORAGE_OPTION_PREFIX:
                if value is not None:
                    storage_options[key.removeprefix(STORAGE_OPTION_PREFIX)] = read_storage_option(key, value)
                continue
            option = self._find(key, shown_prefix)
            if only is not None and option not in only:
                continue
            if option.key != key:
                _log.warning("option %s%s is deprecated; use %s%s", shown_prefix, key, shown_prefix, option.key)
            if value is not None:
                values[option.key] = option.read(value)
        return OptionLevel(name, values, storage_options)

    def unknown(self, key: str, shown_prefix: str = "") -> InvalidRequestError:
        """The error for a key that does not exist, with the nearest known one."""
        suggestion = self.nearest(key, SUGGESTION_LIKENESS_MIN)
        if suggestion is None and key.startswith(STORAGE_OPTION_PREFIX.rstrip(".")):
            suggestion = STORAGE_OPTION_PREFIX + "<name>"
        if suggestion is None:
            advice = "docs/reference/configuration.md lists all options"
        else:
            advice = f"did you mean {shown_prefix}{suggestion}?"
        return InvalidRequestError(f"{shown_prefix}{key} is no option of varvite; {advice}")

    def nearest(self, key: str, likeness_min: float) -> str | None:
        """The current key that is most like this one; None if none is that similar."""

        def likeness(candidate: str) -> float:
            has_same_ending = candidate.rpartition(".")[2] == key.lower().rpartition(".")[2]
            return difflib.SequenceMatcher(None, key.lower(), candidate).ratio() + _SAME_ENDING * has_same_ending

        best = max(self._keys, key=likeness)
        return self.current_keys.get(best, best) if likeness(best) >= likeness_min else None

    def _find(self, key: str, shown_prefix: str) -> ConfigOption:
        option = self.options.get(self.current_keys.get(key, key))
        if option is None:
            raise self.unknown(key, shown_prefix)
        return option

    @property
    def _keys(self) -> list[str]:
        return [*self.options, *self.current_keys]


def values_for(config: type[Any], levels: Sequence[OptionLevel]) -> dict[str, Any]:
    """Values of those fields of a dataclass whose options are set, each by the strongest level that sets it.

    Args:
        config: A dataclass with fields that options set.
        levels: Strongest first.
    """
    values: dict[str, Any] = {}
    for name, option in options_of(config).items():
        if any(option.key in level.values for level in levels):
            values[name] = value_of(option, levels)
    return values


def value_of(option: ConfigOption, levels: Sequence[OptionLevel]) -> Any:
    """The value of the strongest level that sets the option, else its default."""
    return next((level.values[option.key] for level in levels if option.key in level.values), option.default)


def read_storage_option(key: str, value: Any) -> Any:
    """A storage option as fsspec wants it: text, but `true` and `false` become booleans, `{...}` and `[...]` are JSON.

    Digits stay text, because keys and secrets may consist of them. Raises `InvalidRequestError`; the value is in no
    error message.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text[:1] in ("{", "["):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise InvalidRequestError(f"option {key} begins like JSON but is none; correct its value") from None
    return value
