"""The encrypted object behind a golden file.

`python -m tests.golden.writers.encrypted` writes the file if it is missing.
"""

from __future__ import annotations

from pathlib import Path

from varvite.storage.object_stores.encrypted.keys import EncryptionKey
from varvite.storage.object_stores.encrypted.sealed_object import ObjectCipher, new_header

FILE = Path(__file__).parents[1] / "data" / "encrypted-object-v1.bin"
KEY = EncryptionKey("key-of-2026", bytes(range(32)))
JOB_ID = "0123456789abcdef0123456789abcdef"
NAME = "seg/00000000000000000008/flights/00001-00000000000000000000000000000051-00000"
PLAIN = bytes(i * i % 251 for i in range(150_000))
"""Three chunks."""


def encoded() -> bytes:
    """The object as today's code writes it with that salt."""
    header = new_header(KEY, bytes(range(100, 116)), len(PLAIN))
    return ObjectCipher(header, KEY, JOB_ID.encode() + b"\0" + NAME.encode(), NAME).seal(PLAIN)


if __name__ == "__main__" and not FILE.exists():
    FILE.write_bytes(encoded())
