"""Inspects the classes of messages and records before they are decoded, in one thread at a time.

msgspec inspects a class the first time that it decodes one, and fetches the annotations of classes inside of it by
Python code. A second thread that decodes the same class meanwhile meets an inspection that is not complete, and the
process ends with a segmentation fault.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any, Final, TypeVar, overload

import msgspec

_T = TypeVar("_T")
_lock: Final = Lock()


@overload
def inspected(kind: type[_T]) -> type[_T]: ...
@overload
def inspected(kind: Any) -> Any: ...
def inspected(kind: Any) -> Any:
    """The same type, once msgspec has inspected all classes in it.

    Each type with classes goes through this before `decode`, `convert` or a `Decoder` gets it.

    Raises:
        TypeError: msgspec does not support it.
    """
    _inspect(kind)
    return kind


@cache
def _inspect(kind: Any) -> None:
    with _lock:
        msgspec.msgpack.Decoder(kind)
