"""Fixtures of the tests of working stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., RocksDBStore]]:
    """Opens the store of `tmp_path/db`, closing what it opened before."""
    opened: list[RocksDBStore] = []

    def opener(
        operator: str = OPERATOR, key_type: str = KEY_TYPE, low: int = 0, high: int = KEY_GROUPS,
        options: RocksDBOptions | None = None,
    ) -> RocksDBStore:  # fmt: skip
        for store in opened:
            store.close()
        opened.append(RocksDBStore.open(tmp_path / "db", operator, key_type, low, high, options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()
