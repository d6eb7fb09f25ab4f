"""Sources of keys, and errors if these are missing or wrong."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingKeyError
from varvite.storage.object_stores.encrypted.keys import (
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    PROVIDER_VARIABLE,
    EncryptionKey,
    Keyring,
    open_keyring,
)

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
OLD_TEXT, NEW_TEXT = OLD.hex(), base64.b64encode(NEW).decode()
PROVIDER = f"{__name__}:Vault"


class Vault:
    """A provider as a user writes one."""

    asked = 0

    def current_key(self) -> EncryptionKey:
        return EncryptionKey("2026", NEW)

    def key(self, key_id: str) -> EncryptionKey | None:
        Vault.asked += 1
        return {"2026": EncryptionKey("2026", NEW), "2025": EncryptionKey("2025", OLD)}.get(key_id)


def test_the_first_key_encrypts_and_the_others_are_known() -> None:
    ring = open_keyring(None, {KEY_VARIABLE: f"{NEW_TEXT}, {OLD_TEXT}"})
    assert ring.current.secret == NEW
    [old] = [open_keyring(None, {KEY_VARIABLE: OLD_TEXT}).current]
    assert ring.key(old.key_id, old.check, "x").secret == OLD
    assert ring.find("unknown") is None


def test_a_file_has_a_key_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# new ones first\n{NEW_TEXT}  # since March\n\n{OLD_TEXT}\n")
    ring = open_keyring("environment", {KEY_FILE_VARIABLE: str(path)})
    assert ring.current.secret == NEW
    assert ring.find(open_keyring(None, {KEY_VARIABLE: OLD_TEXT}).current.key_id) is not None


def test_without_a_key_it_is_said_where_to_put_one() -> None:
    for environment in ({}, {KEY_VARIABLE: " , "}):
        with pytest.raises(MissingKeyError, match=f"set {KEY_FILE_VARIABLE} or {KEY_VARIABLE}"):
            open_keyring(None, environment)


@pytest.mark.parametrize("text", ["secret", OLD_TEXT[:-2], NEW_TEXT + "AAAA", "zz" * 32, f"{OLD_TEXT} secret"])
def test_a_wrong_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not 32 bytes in base64 or hexadecimal") as raised:
        open_keyring(None, {KEY_VARIABLE: text})
    assert text not in str(raised.value)


def test_a_key_is_never_shown() -> None:
    key = EncryptionKey("k", OLD)
    assert OLD_TEXT not in repr(key)
    assert repr(OLD) not in repr(key)


def test_environment_that_contradicts_itself_or_names_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="both"):
        open_keyring(None, {KEY_VARIABLE: OLD_TEXT, KEY_FILE_VARIABLE: "x"})
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        open_keyring(None, {KEY_FILE_VARIABLE: str(tmp_path / "none")})


def test_a_provider_of_the_users_is_asked_once_for_each_key() -> None:
    ring = open_keyring(PROVIDER, {})
    Vault.asked = 0
    assert ring.current.key_id == "2026"
    old = EncryptionKey("2025", OLD)
    assert [ring.key("2025", old.check, "x").secret for _ in range(3)] == [OLD] * 3
    assert Vault.asked == 1


def test_the_environment_can_name_the_provider() -> None:
    assert open_keyring(None, {PROVIDER_VARIABLE: PROVIDER}).current.key_id == "2026"


@pytest.mark.parametrize(
    ("name", "message"),
    [("no.such:Vault", "cannot be imported"), (f"{__name__}:OLD", "cannot be called"), ("builtins:dict", "lacks")],
)
def test_a_provider_that_is_none_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        open_keyring(name, {})


class Broken:
    """Raises, or answers with something else."""

    answer: object = None

    def current_key(self) -> EncryptionKey:
        return self.answer  # type: ignore[return-value]

    def key(self, key_id: str) -> EncryptionKey | None:
        raise OSError("the vault is sealed")


def failing_factory() -> Broken:
    raise OSError("no token")


def test_a_provider_that_fails_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="failed: OSError: no token"):
        open_keyring(f"{__name__}:failing_factory", {})
    broken = Broken()
    ring = Keyring(broken)
    with pytest.raises(DidNotHappenError, match="OSError: the vault is sealed"):
        ring.find("2026")
    with pytest.raises(MissingKeyError, match="no current key"):
        _ = ring.current
    broken.answer = OLD
    with pytest.raises(InvalidRequestError, match="answered with a bytes"):
        _ = ring.current


def test_another_key_under_the_same_id_is_told_from_damage() -> None:
    ring = Keyring(Vault())
    with pytest.raises(MissingKeyError, match="another key") as raised:
        ring.key("2026", EncryptionKey("2026", OLD).check, "seg/1")
    assert raised.value.context["object_name"] == "seg/1"
    with pytest.raises(MissingKeyError, match="'2024', which was not given"):
        ring.key("2024", b"", "seg/1")


@pytest.mark.parametrize(("key_id", "secret"), [("", OLD), ("a b", OLD), ("x" * 65, OLD), ("ü", OLD), ("k", OLD[:16])])
def test_a_key_has_32_bytes_and_an_id_that_can_be_stored(key_id: str, secret: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        EncryptionKey(key_id, secret)
