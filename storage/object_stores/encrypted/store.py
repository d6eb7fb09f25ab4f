"""A store whose objects are encrypted: whoever has the storage without the keys sees names, sizes and times alone.

Each object is bound to its name and to the job's id, so none can stand in for another; how it is written says
`varvite.storage.object_stores.encrypted.sealed_object`. Parts of objects are read as such, with one small request more
for an object of which this store has not read before, unless the part begins the object.

Each call that writes encrypts under a salt of its own. Who may send an object several times has it encrypted once
(`varvite.storage.object_stores.prepared_object`).

Invariants: I8 (whatever is not what was written is `CorruptDataError`), I10 (bounded memory of headers).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError
from varvite.storage.object_stores.contract import check_range, cut_off
from varvite.storage.object_stores.encrypted.sealed_object import (
    CHUNK_BYTES,
    HEADER_BYTES,
    ObjectCipher,
    new_header,
    plain_bytes,
    read_header,
    sealed_bytes,
)
from varvite.storage.object_stores.local.errors import happened_not
from varvite.storage.object_stores.local.files import check_source, complete_or_absent
from varvite.storage.object_stores.names import check_name
from varvite.storage.object_stores.prepared_object import PreparedObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.storage.clock import TokenSource
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore
    from varvite.storage.object_stores.encrypted.keys import Keyring

CIPHERS_MAX: Final = 256
"""Objects whose header a store remembers."""
READS_MAX: Final = 3
"""Reads of a range before what is found is taken for damage."""


class EncryptedStore:
    """The objects of `inner`, encrypted; see `ObjectStore` for each method.

    Besides, reading raises `MissingKeyError` for an object that is encrypted with a key that the keyring has not.
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
                # Perhaps it was written anew since its header was read.
                self._forget(name)
        return self._read_range(name, offset, length)

    def prepare(self, name: str, content: bytes | Path) -> PreparedObject:
        if isinstance(content, Path):
            return self._sealed_file(check_name(name), check_source(content))
        sealed = self._new_cipher(check_name(name), len(content)).seal(content)
        return PreparedObject(self._inner, name, sealed)

    def is_reusable(self, name: str) -> bool:
        """Whether the object is there and encrypted with the key for new objects; the key it has is not needed."""
        try:
            known = self._ciphers.get(name)
            header = known.header if known else read_header(self._inner.get_range(name, 0, HEADER_BYTES), name)
        except (CorruptDataError, IncompatibleError):
            return False
        current = self._keyring.current
        return (header.key_id, header.key_check) == (current.key_id, current.check)

    def put(self, name: str, data: bytes) -> None:
        self.prepare(name, data).put()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.prepare(name, data).put_if_absent()

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        found = self._inner.list(prefix, start_after=start_after)
        return [meta._replace(size_bytes=plain_bytes(meta.size_bytes, self._chunk_bytes)) for meta in found]

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
                raise happened_not(error, f"decrypting into {path}", name) from error
            finally:
                with suppress(OSError):
                    sealed.unlink(missing_ok=True)

    def link_file(self, name: str, path: Path) -> bool:
        del name, path
        return False

    def _read_range(self, name: str, offset: int, length: int) -> bytes:
        known = self._ciphers.get(name)
        if known is not None:
            return self._read(known, name, offset, length)
        data = self._beginning(name, length if offset == 0 else 0)
        cipher = self._cipher_of(name, data)
        if len(data) == cipher.header.sealed_bytes and offset + length <= cipher.header.plain_bytes:
            return cipher.open(data)[offset : offset + length]
        self._remember(name, cipher)
        return self._read(cipher, name, offset, length)

    def _beginning(self, name: str, plain_size_bytes: int) -> bytes:
        """The header, and what follows it if the object is just so long as who reads it thinks: most often it is."""
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
            raise cut_off(name, offset, length, max(0, header.plain_bytes - offset))
        if not length:
            return b""
        first, last = offset // header.chunk_bytes, (offset + length - 1) // header.chunk_bytes
        start, end = header.chunk_offset(first), header.chunk_offset(last + 1)
        data = self._inner.get_range(name, start, end - start)
        plain = b"".join(cipher.open_chunks(data, first, last - first + 1))
        skipped = offset - first * header.chunk_bytes
        return plain[skipped : skipped + length]

    def _sealed_file(self, name: str, source: Path) -> PreparedObject:
        with ExitStack() as undo:
            try:
                cipher = self._new_cipher(name, source.stat().st_size)
                scratch = undo.enter_context(closing(_Scratch()))
                with source.open("rb") as plain, scratch.file.open("wb") as target:
                    cipher.seal_file(plain, target)
            except OSError as error:
                raise happened_not(error, f"encrypting {source} into {tempfile.gettempdir()}", name) from error
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
    """A temporary file. It is gone when nobody has it any more, or with the process, if it is not closed before."""

    def __init__(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="varvite-encrypted-"))
        self.file = directory / "object"
        self._remove = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def close(self) -> None:
        self._remove()
