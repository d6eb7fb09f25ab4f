"""`Configuration`: settings by key, with PyFlink's methods."""

from __future__ import annotations

import enum
from typing import Any


class RuntimeExecutionMode(enum.Enum):
    """Modes of execution; varvite has STREAMING only."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


class Configuration:
    """Settings for `get_execution_environment(configuration)` and `env.configure(configuration)`."""

    def __init__(self, other: Configuration | None = None) -> None:
        self._settings: dict[str, Any] = {} if other is None else other.to_dict()

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
