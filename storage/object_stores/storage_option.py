"""Storage options that come as text: from Spark's configuration, and from command lines."""

from __future__ import annotations

from typing import Any

import msgspec

from varve.storage.errors import InvalidRequestError


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
