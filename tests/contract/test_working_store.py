"""The contract of `WorkingStore`, for every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.working_stores import KINDS, open_store
from varvite.testing.contracts import WorkingStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.changelog.working_stores.table_store import StoreTarget


class TestWorkingStores(WorkingStoreContract):
    """All claims, for varvite's stores and for one that a user could have written."""

    @pytest.fixture(params=KINDS)
    def make_store(self, request: pytest.FixtureRequest) -> Callable[[StoreTarget], WorkingStore]:
        kind: str = request.param
        return lambda target: open_store(kind, target.directory, target.key_type, target.low, target.high)
