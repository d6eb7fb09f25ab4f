"""Encrypted objects stay readable, for ever."""

from __future__ import annotations

from tests.golden.writers.encrypted import FILE, JOB_ID, KEY, NAME, PLAIN, encoded
from varvite.storage.clock import SystemTokens
from varvite.storage.object_stores.encrypted.keys import EncryptionKey, Keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.memory import MemoryStore


class OneKey:
    def current_key(self) -> EncryptionKey:
        return KEY

    def key(self, key_id: str) -> EncryptionKey | None:
        return KEY if key_id == KEY.key_id else None


def test_todays_code_writes_the_golden_bytes() -> None:
    assert encoded() == FILE.read_bytes()


def test_the_golden_object_is_read() -> None:
    inner = MemoryStore()
    inner.put(NAME, FILE.read_bytes())
    store = EncryptedStore(inner, Keyring(OneKey()), JOB_ID, SystemTokens())
    assert store.get(NAME) == PLAIN
    assert store.get_range(NAME, 140_000, 5) == PLAIN[140_000:140_005]
    assert store.list("")[0].size_bytes == len(PLAIN)
