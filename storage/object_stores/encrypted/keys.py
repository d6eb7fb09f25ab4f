"""The keys that objects are encrypted with: from the environment, or from a user's key provider.

No key is ever stored, sent to another process or shown: each process asks its own provider, once for each key. Stored
are a key's id, and a check value that shows if a key is the right one.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingKeyError, VarviteError
from varvite.storage.named_objects import call_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEY_BYTES: Final = 32
"""AES-256."""
KEY_ID_BYTES_MAX: Final = 64
CHECK_BYTES: Final = 8
KEY_VARIABLE: Final = "VARVITE_ENCRYPTION_KEY"
KEY_FILE_VARIABLE: Final = "VARVITE_ENCRYPTION_KEY_FILE"
PROVIDER_VARIABLE: Final = "VARVITE_ENCRYPTION_KEY_PROVIDER"
ENVIRONMENT: Final = "environment"
"""The provider that reads the variables."""
_ID: Final = re.compile(r"[!-~]{1,64}")
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class EncryptionKey:
    """A secret key of 32 bytes, and the id that is stored with each object that it encrypts."""

    key_id: str
    """1 to 64 visible ASCII characters; not secret."""
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError`; no message shows the secret."""
        if not _ID.fullmatch(self.key_id):
            raise InvalidRequestError(f"{self.key_id!r} is no id of a key; use 1 to 64 visible ASCII characters")
        if len(self.secret) != KEY_BYTES:
            raise InvalidRequestError(
                f"the encryption key {self.key_id!r} has {len(self.secret)} bytes; it must have {KEY_BYTES}"
            )

    @property
    def check(self) -> bytes:
        """Bytes that are derived from the secret and do not reveal it."""
        return derive(self.secret, b"varve key check", CHECK_BYTES)


@runtime_checkable
class KeyProvider(Protocol):
    """Gives keys, from a key management service or a vault, for example. Called rarely: answers are cached."""

    def current_key(self) -> EncryptionKey:
        """The key for new objects."""
        ...

    def key(self, key_id: str) -> EncryptionKey | None:
        """The key with this id, which was current earlier; None if it does not exist any more."""
        ...


class Keyring:
    """The keys of a process, fetched lazily from a provider. May be used by several threads."""

    def __init__(self, provider: KeyProvider) -> None:
        self._provider = provider
        self._current: EncryptionKey | None = None
        self._keys: dict[str, EncryptionKey] = {}

    @property
    def current(self) -> EncryptionKey:
        """The key for new objects; it never changes."""
        if self._current is None:
            key = _ask(self._provider.current_key)
            if key is None:
                raise MissingKeyError("the key provider has no current key; see what it needs")
            self._keys[key.key_id] = key
            self._current = key
        return self._current

    def find(self, key_id: str) -> EncryptionKey | None:
        """The key with this id, or None."""
        key = self._keys.get(key_id) or _ask(lambda: self._provider.key(key_id))
        if key is not None:
            self._keys[key_id] = key
        return key

    def key(self, key_id: str, check: bytes, object_name: str) -> EncryptionKey:
        """The key that an object is encrypted with. Raises `MissingKeyError` if it is unknown, or another one."""
        key = self.find(key_id)
        if key is None:
            raise MissingKeyError(
                f"it is encrypted with the key {key_id!r}, which was not given to this process; add it to the keys in "
                f"{KEY_VARIABLE} or {KEY_FILE_VARIABLE}, or let the key provider know it",
                object_name=object_name,
            )
        if key.check != check:
            raise MissingKeyError(
                f"it is encrypted with another key than the one that was given under the id {key_id!r}; give the key "
                "that it was written with",
                object_name=object_name,
            )
        return key


class EnvironmentKeys:
    """Keys of this process's environment: `VARVITE_ENCRYPTION_KEY`, or the file `VARVITE_ENCRYPTION_KEY_FILE`.

    Keys are 32 bytes in base64 or hexadecimal, separated by spaces, commas or ends of lines; the first one is for new
    objects, the others are for older ones. `#` begins a comment. A key's id is derived from the key.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises `MissingKeyError` if there is no key, `InvalidRequestError` if one is wrong."""
        keys = [_parse(text, number) for number, text in enumerate(_encoded_keys(environment), 1)]
        if not keys:
            raise MissingKeyError(
                f"there is no encryption key in this process's environment; set {KEY_FILE_VARIABLE} or {KEY_VARIABLE}, "
                "on the driver, on the executors and for tools"
            )
        self._current = keys[0]
        self._keys = {key.key_id: key for key in keys}

    def current_key(self) -> EncryptionKey:
        return self._current

    def key(self, key_id: str) -> EncryptionKey | None:
        return self._keys.get(key_id)


def open_keyring(provider: str | None = None, environment: Mapping[str, str] | None = None) -> Keyring:
    """The keys of this process.

    Args:
        provider: `environment`, or `module:qualified.name` of a factory of a `KeyProvider` without arguments; None: the
            value of `VARVITE_ENCRYPTION_KEY_PROVIDER`, or `environment` if it is not set.
        environment: The variables; None: those of the process.

    Raises:
        MissingKeyError: The environment has no key.
        InvalidRequestError: A key has the wrong form, or the provider cannot be made.
    """
    variables = os.environ if environment is None else environment
    name = provider or variables.get(PROVIDER_VARIABLE) or ENVIRONMENT
    if name == ENVIRONMENT:
        return Keyring(EnvironmentKeys(variables))
    instance: Any = call_named(name, "key provider", "correct it, or what it needs")
    if not isinstance(instance, KeyProvider):
        raise InvalidRequestError(
            f"the key provider {name!r} made a {type(cast('object', instance)).__name__}, which lacks current_key() or "
            "key(key_id)"
        )
    return Keyring(instance)


def _ask(ask: Callable[[], Any]) -> EncryptionKey | None:
    """Call a provider. Raises `DidNotHappenError` if it raises, `InvalidRequestError` if its answer is no key."""
    try:
        answer = ask()
    except VarviteError:
        raise
    except Exception as error:  # user code may raise anything
        raise DidNotHappenError(
            f"the key provider failed: {type(error).__name__}: {error}; see to what it needs, then try again"
        ) from error
    if answer is not None and not isinstance(answer, EncryptionKey):
        raise InvalidRequestError(
            f"the key provider answered with a {type(answer).__name__}; it must answer with an EncryptionKey or None"
        )
    return answer


def derive(secret: bytes, info: bytes, size_bytes: int, salt: bytes | None = None) -> bytes:
    """HKDF-SHA256. Raises `InvalidRequestError` without the package `cryptography`."""
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise InvalidRequestError(
            "encryption needs the package cryptography on driver, executors and for tools: pip install "
            "'varvite[encryption]'"
        ) from error
    return HKDF(hashes.SHA256(), size_bytes, salt, info).derive(secret)


def _encoded_keys(environment: Mapping[str, str]) -> Sequence[str]:
    """The encoded keys, in order."""
    text, path = environment.get(KEY_VARIABLE), environment.get(KEY_FILE_VARIABLE)
    if text and path:
        raise InvalidRequestError(f"both {KEY_VARIABLE} and {KEY_FILE_VARIABLE} are set; set one of them")
    if path:
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"the file of {KEY_FILE_VARIABLE} cannot be read: {error}; correct the path or its permissions"
            ) from error
    lines = (line.partition("#")[0] for line in (text or "").splitlines())
    return [key for line in lines for key in re.split(r"[\s,]+", line) if key]


def _parse(text: str, number: int) -> EncryptionKey:
    """Decode a key and derive its id; no message shows the text."""
    try:
        secret = bytes.fromhex(text) if _HEX.fullmatch(text) else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise InvalidRequestError(
            f"encryption key {number} is not {KEY_BYTES} bytes in base64 or hexadecimal; make one with "
            "`openssl rand -base64 32`"
        )
    return EncryptionKey(derive(secret, b"varve key id", 8).hex(), secret)
