"""A key provider as users write one, for tests in which processes have no environment of their own."""

from __future__ import annotations

from varvite.storage.object_stores.encrypted.keys import EncryptionKey

KEYS = {year: EncryptionKey(year, bytes(range(n, n + 32))) for n, year in enumerate(("2025", "2026"))}


class Vault:
    """Gives the newest key for new objects."""

    def current_key(self) -> EncryptionKey:
        return KEYS["2026"]

    def key(self, key_id: str) -> EncryptionKey | None:
        return KEYS.get(key_id)


class OldVault(Vault):
    """As it was a year before."""

    def current_key(self) -> EncryptionKey:
        return KEYS["2025"]


class WrongVault(Vault):
    """Gives another key under the same id."""

    def key(self, key_id: str) -> EncryptionKey | None:
        return EncryptionKey(key_id, bytes(32))
