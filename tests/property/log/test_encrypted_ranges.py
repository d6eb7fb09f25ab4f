"""Any range of an encrypted object is what it is of a plain one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varvite.storage.clock import SystemTokens
from varvite.storage.errors import CorruptDataError
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE, open_keyring
from varvite.storage.object_stores.encrypted.store import EncryptedStore
from varvite.storage.object_stores.memory import MemoryStore

KEYS = open_keyring("environment", {KEY_VARIABLE: "cd" * 32})
RANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=6)


@given(data=st.binary(max_size=100), chunk_bytes=st.integers(1, 40), ranges=RANGES, rewritten=st.binary(max_size=100))
def test_ranges(data: bytes, chunk_bytes: int, ranges: list[tuple[int, int]], rewritten: bytes) -> None:
    store = EncryptedStore(MemoryStore(), KEYS, "job", SystemTokens(), chunk_bytes)
    for body in (data, rewritten):  # what the store remembers of the first must not disturb the second
        store.put("a", body)
        assert store.list("")[0].size_bytes == len(body)
        for offset, length in [*ranges, (0, len(body))]:
            if offset + length > len(body):
                with pytest.raises(CorruptDataError):
                    store.get_range("a", offset, length)
            else:
                assert store.get_range("a", offset, length) == body[offset : offset + length]
        assert store.get("a") == body
