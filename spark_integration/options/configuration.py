"""`Configuration`: settings by key, with PyFlink's methods."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class RuntimeExecutionMode(enum.Enum):
    """Modes of execution, with PyFlink's numbers."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


class Configuration:
    """Settings for `get_execution_environment(configuration)` and `env.configure(configuration)`."""

    def __init__(self, other: Configuration | None = None) -> None:
        self._settings: dict[str, Any] = {} if other is None else other.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(frozenset(self._settings))

    def __str__(self) -> str:
        return f"{{{', '.join(f'{key}={value}' for key, value in self._settings.items())}}}"

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a text; every option accepts one."""
        return self._set(key, value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a number."""
        return self._set(key, value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a number."""
        return self._set(key, value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a truth value."""
        return self._set(key, value)

    def get_string(self, key: str, default_value: str | None) -> str | None:
        """The setting as text, else the default."""
        return str(self._settings[key]) if key in self._settings else default_value

    def get_integer(self, key: str, default_value: int) -> int:
        """The setting as a number, else the default."""
        return int(self._settings.get(key, default_value))

    def get_float(self, key: str, default_value: float) -> float:
        """The setting as a number, else the default."""
        return float(self._settings.get(key, default_value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The setting as a truth value, else the default."""
        value = self._settings.get(key, default_value)
        return value.strip().lower() == "true" if isinstance(value, str) else bool(value)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes."""
        return self._set(key, bytearray(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The setting as bytes, else the default."""
        return bytearray(self._settings.get(key, default_value))

    @staticmethod
    def from_dict(map: Mapping[str, Any]) -> Configuration:  # noqa: A002  PyFlink's name
        """Settings from key → value."""
        return Configuration().add_all(map)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The items of a text: within brackets and separated by commas, or separated by semicolons."""
        if not value:
            return []
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            return [item.strip().strip("\"'") for item in text[1:-1].split(",") if item.strip()]
        return value.split(";")

    def add_all(self, other: Configuration | Mapping[str, Any], prefix: str | None = None) -> Configuration:
        """Add other settings, with a prefix before their keys."""
        others = other.to_dict() if isinstance(other, Configuration) else other
        self._settings.update({(prefix or "") + key: value for key, value in others.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add the settings to a dict."""
        target_dict.update(self._settings)

    def contains_key(self, key: str) -> bool:
        """True if the key was set."""
        return key in self._settings

    def key_set(self) -> set[str]:
        """The keys that were set."""
        return set(self._settings)

    def remove_config(self, key: str) -> bool:
        """Remove a setting; true if there was one."""
        return self._settings.pop(key, self) is not self

    def to_dict(self) -> dict[str, Any]:
        """Key → value."""
        return dict(self._settings)

    def _set(self, key: str, value: Any) -> Configuration:
        self._settings[key] = value
        return self


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """A key and the default of a setting, for libraries of PyFlink that declare one."""

    key: str
    default: T | None = None


class ConfigOptions:
    """Builds options: `ConfigOptions.key("tmp.dir").string_type().default_value("/tmp")`."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """A builder for an option."""
        return ConfigOptions.OptionBuilder(key)

    @dataclass(frozen=True)
    class OptionBuilder:
        """An option without a type."""

        key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """An option of a type, as do the others."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """An option of a type."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """An option of a type."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """An option of a type."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """An option of a type."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """An option of a type."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key)

    @dataclass(frozen=True)
    class TypedConfigOptionBuilder(Generic[T]):
        """An option without a default."""

        key: str

        def default_value(self, value: T) -> ConfigOption[T]:
            """The option with a default."""
            return ConfigOption(self.key, value)

        def no_default_value(self) -> ConfigOption[T]:
            """The option without a default."""
            return ConfigOption(self.key)
