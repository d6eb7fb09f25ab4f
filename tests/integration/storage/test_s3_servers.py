"""S3 servers beside Ceph and moto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.clouds.checks import check_races
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.open import open_store

if TYPE_CHECKING:
    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3


@pytest.mark.rare
@pytest.mark.timeout(1800)
def test_eight_writers_race_and_one_wins_each_time_on_seaweedfs(seaweedfs_server: S3Server) -> None:
    check_races(seaweedfs_server.new_location(), seaweedfs_server.storage_options())


@pytest.mark.rare
def test_s3rver_is_refused_because_it_ignores_conditions(careless_s3_server: S3Server) -> None:
    store = open_store(careless_s3_server.new_location(), careless_s3_server.storage_options())
    with pytest.raises(InvalidRequestError, match="If-None-Match is ignored"):
        check_store(store, SystemTokens(), SystemClock())
