"""A store whose objects are encrypted: without the keys, the storage shows only names, sizes and times.

Each object is bound to its name and to the job's id, so none can replace another; the format is in
`varvite.storage.object_stores.encrypted.sealed_object`. A range is read as a range. The first read from an object takes
one small request more, unless the range begins the object.

Each call that writes encrypts under a new salt. A caller that may send an object several times encrypts it once
(`varvite.storage.object_stores.prepared_object`).

Invariants: I8 (a change of any byte is `CorruptDataError`), I10 (bounded memory of headers).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError
from varvite.storage.object_stores.contract import check_range, truncated
from varvite.storage.object_stores.encrypted.sealed_object import (
    CHUNK_BYTES,
    HEADER_BYTES,
    ObjectCipher,
    new_header,
    plain_bytes,
    read_header,
    sealed_bytes,
)
from varvite.storage.object_stores.local.errors import did_not_happen
from varvite.storage.object_stores.local.files import check_source, complete_or_absent
from varvite.storage.object_stores.names import check_name
from varvite.storage.object_stores.prepared_object import PreparedObject
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.storage.clock import TokenSource
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.encrypted.keys import Keyring

CIPHERS_MAX: Final = 256
"""Object headers that a store caches."""
READS_MAX: Final = 3
"""Reads of a range before a mismatch counts as damage."""


class EncryptedStore:
    """The objects of `inner`, encrypted.

    Reads raise `MissingKeyError` for an object that is encrypted with a key that the keyring does not have.
    """

    def __init__(
        self,
        inner: ObjectStore,
        keyring: Keyring,
        job_id: str,
        tokens: TokenSource,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """`tokens` makes the salts; `chunk_bytes` is for tests."""
        self._inner = inner
        self._keyring = keyring
        self._job_id = job_id.encode()
        self._tokens = tokens
        self._chunk_bytes = chunk_bytes
        self._ciphers: dict[str, ObjectCipher] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, name: str) -> bytes:
        data = self._inner.get(name)
        return self._cipher_of(name, data).open(data)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_range(name, offset, length)
        for _ in range(READS_MAX - 1):
            try:
                return self._read_range(name, offset, length)
            except MissingObjectError:
                raise
            except CorruptDataError:
                # Perhaps it was written again since its header was read.
                self._forget(name)
        return self._read_range(name, offset, length)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        if isinstance(content, Path):
            return self._seal_file(check_name(name), check_source(content))
        sealed = self._new_cipher(check_name(name), len(content)).seal(content)
        return PreparedObject(self._inner, name, sealed)

    def is_reusable(self, name: str) -> bool:
        """True for an object that is encrypted with the key for new objects; works without the object's key."""
        try:
            cipher = self._ciphers.get(name)
            header = cipher.header if cipher else read_header(self._inner.get_range(name, 0, HEADER_BYTES), name)
        except (CorruptDataError, IncompatibleError):
            return False
        current = self._keyring.current
        return (header.key_id, header.key_check) == (current.key_id, current.check)

    def put(self, name: str, data: bytes) -> None:
        self.prepare(name, data).put()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.prepare(name, data).put_if_absent()

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        metas = self._inner.list(prefix, start_after=start_after)
        return [meta._replace(size_bytes=plain_bytes(meta.size_bytes, self._chunk_bytes)) for meta in metas]

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete(names)

    def put_file(self, name: str, path: Path) -> None:
        with closing(self.prepare(name, path)) as sealed:
            sealed.put()

    def get_file(self, name: str, path: Path) -> None:
        with complete_or_absent(path) as part:
            sealed = part.with_name(f"{part.name}.sealed")
            try:
                self._inner.get_file(name, sealed)
                with sealed.open("rb") as source, part.open("wb") as target:
                    self._cipher_of(name, source.read(HEADER_BYTES)).open_file(source, target)
            except OSError as error:
                raise did_not_happen(error, f"decrypting into {path}", name) from error
            finally:
                with suppress(OSError):
                    sealed.unlink(missing_ok=True)

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False

    def _read_range(self, name: str, offset: int, length: int) -> bytes:
        cached = self._ciphers.get(name)
        if cached is not None:
            return self._read(cached, name, offset, length)
        data = self._read_beginning(name, length if offset == 0 else 0)
        cipher = self._cipher_of(name, data)
        if len(data) == cipher.header.sealed_bytes and offset + length <= cipher.header.plain_bytes:
            return cipher.open(data)[offset : offset + length]
        self._remember(name, cipher)
        return self._read(cipher, name, offset, length)

    def _read_beginning(self, name: str, plain_size_bytes: int) -> bytes:
        """Read the whole object if it is as long as the caller expects, which is usual; otherwise its header."""
        if plain_size_bytes:
            try:
                return self._inner.get_range(name, 0, sealed_bytes(plain_size_bytes, self._chunk_bytes))
            except MissingObjectError:
                raise
            except CorruptDataError:
                pass  # it is shorter
        return self._inner.get_range(name, 0, HEADER_BYTES)

    def _read(self, cipher: ObjectCipher, name: str, offset: int, length: int) -> bytes:
        header = cipher.header
        if offset + length > header.plain_bytes:
            raise truncated(name, offset, length, max(0, header.plain_bytes - offset))
        if not length:
            return b""
        first, last = offset // header.chunk_bytes, (offset + length - 1) // header.chunk_bytes
        start, end = header.chunk_offset(first), header.chunk_offset(last + 1)
        data = self._inner.get_range(name, start, end - start)
        plain = b"".join(cipher.open_chunks(data, first, last - first + 1))
        skipped = offset - first * header.chunk_bytes
        return plain[skipped : skipped + length]

    def _seal_file(self, name: str, source: Path) -> PreparedObject:
        with ExitStack() as undo:
            try:
                cipher = self._new_cipher(name, source.stat().st_size)
                scratch = undo.enter_context(closing(_Scratch()))
                with source.open("rb") as plain, scratch.file.open("wb") as target:
                    cipher.seal_file(plain, target)
            except OSError as error:
                raise did_not_happen(error, f"encrypting {source} into a temporary directory (TMPDIR)", name) from error
            undo.pop_all()
            return PreparedObject(self._inner, name, scratch.file, scratch.close)

    def _new_cipher(self, name: str, plain_size_bytes: int) -> ObjectCipher:
        key, salt = self._keyring.current, bytes.fromhex(self._tokens.token())
        header = new_header(key, salt, plain_size_bytes, self._chunk_bytes)
        return ObjectCipher(header, key, self._binding(name), name)

    def _cipher_of(self, name: str, data: bytes) -> ObjectCipher:
        header = read_header(data, name)
        key = self._keyring.key(header.key_id, header.key_check, name)
        return ObjectCipher(header, key, self._binding(name), name)

    def _binding(self, name: str) -> bytes:
        return self._job_id + b"\0" + name.encode()

    def _remember(self, name: str, cipher: ObjectCipher) -> None:
        with self._lock:
            while len(self._ciphers) >= CIPHERS_MAX:
                del self._ciphers[next(iter(self._ciphers))]
            self._ciphers[name] = cipher

    def _forget(self, name: str) -> None:
        with self._lock:
            self._ciphers.pop(name, None)


class _Scratch:
    """A temporary file; removed by `close`, or with the last reference, or at the end of the process."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory("encrypted")
        self.file = self._directory.path / "object"

    def close(self) -> None:
        self._directory.cleanup()
