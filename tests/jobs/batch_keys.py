"""Keys for the methods of state handles that take many, without Spark."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from tests.jobs.keyed_job import MAX_PARALLELISM
from varvite.changelog.api.batch_keys import BatchKeys, keys_of_batch
from varvite.changelog.types.factory import as_type
from varvite.changelog.types.key_wire import key_writer

if TYPE_CHECKING:
    from collections.abc import Sequence


def keys_of(rows: Sequence[Any], key_type: Any = "string") -> BatchKeys:
    """The keys of a batch whose rows have these keys, each in the key group that `KeyedJob` puts it in."""
    kind = as_type(key_type)
    stored = [None if key is None else kind.freeze(key) for key in rows]
    to_wire = key_writer(kind)
    groups = [zlib.crc32(to_wire(key)) % MAX_PARALLELISM for key in stored]
    return keys_of_batch(kind, kind.to_arrow(stored), groups)


def by_key(keys: BatchKeys, values: Any) -> dict[Any, Any]:
    """Key → element of an Arrow array with an element for each key."""
    return dict(zip(keys.stored, values.to_pylist(), strict=True))


def in_order_of(keys: BatchKeys, values: dict[Any, Any]) -> list[Any]:
    """The value of each key, None for none."""
    return [values.get(key) for key in keys.stored]
