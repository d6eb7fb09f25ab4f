"""Storage servers die by SIGKILL under load, behind a proxy that loses, cuts, delays and refuses.

Nothing that was acknowledged is lost or there twice, and everything goes on when the servers are back.
"""

from __future__ import annotations

import random
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.harness.servers import gcs
from benchmarks.harness.servers.ceph import running_ceph
from benchmarks.harness.servers.hdfs import HdfsServer
from tests.stores.loads import endure
from tests.stores.lossy_proxy import CALM, Fault, LossyProxy, Weather
from tests.stores.s3_servers import BUCKET, skip_without_ceph
from varvite.storage.errors import MissingObjectError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.harness.servers.azure import AzureServer
    from benchmarks.harness.servers.gcs import GcsServer

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]

SEED: Final = 20
CEPHS: Final = (
    ("radosgw",),
    ("ceph-osd",),
    ("ceph-mon",),
    ("radosgw", "ceph-osd", "ceph-mon"),
)
"""Daemons that die together, each once, in an order of the seed."""
NO_ANSWER: Final = Weather(faults=((Fault.LOSE_REQUEST, 1.0),), delay=0.0)


def at(location: str, options: Mapping[str, Any]) -> Callable[[str], RemoteStore]:
    """Opens stores below a location."""
    return lambda name: RemoteStore(f"{location}/{name}", options, backoff=Backoff(3, 0.05, 0.2))


@pytest.mark.s3
def test_killed_daemons_of_ceph_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    skip_without_ceph()
    rng = random.Random(SEED)
    with running_ceph(durable=True) as cluster, LossyProxy(cluster.endpoint_url, SEED) as proxy:
        cluster.make_bucket(BUCKET)

        def crashes(await_all: Callable[[], None]) -> None:
            proxy.weather = Weather()
            for crash in rng.sample(CEPHS, len(CEPHS)):
                await_all()
                for daemon in crash:
                    cluster.kill(daemon)
                time.sleep(rng.random() * 0.5)
                for daemon in reversed(crash):
                    cluster.restart(daemon)
            await_all()
            proxy.weather = CALM

        options = cluster.storage_options(proxy.url) | {"config_kwargs": {"connect_timeout": 2, "read_timeout": 3}}
        endure(at(f"s3://{BUCKET}/{uuid.uuid4().hex}", options), tmp_path, crashes)


@pytest.mark.gcs
def test_a_killed_server_of_google_loses_nothing_that_was_acknowledged(
    gcs_server: GcsServer, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    del gcs_server  # skips where there is none
    rng = random.Random(SEED)
    home = tmp_path_factory.mktemp("gcs")
    with gcs.running_gcs(home) as server, LossyProxy(server.endpoint_url, SEED) as proxy:

        def crashes(await_all: Callable[[], None]) -> None:
            proxy.weather = Weather()
            for _ in range(4):
                await_all()
                server.process.kill()
                time.sleep(rng.random() * 0.5)
                server.process.start()
            await_all()
            proxy.weather = CALM

        endure(at(server.new_location(), server.at(proxy.url).storage_options()), tmp_path, crashes)


@pytest.mark.azure
def test_outages_of_azure_lose_nothing_that_was_acknowledged(azure_server: AzureServer, tmp_path: Path) -> None:
    """Azurite itself would lose what it has in memory, so the proxy is what fails."""
    with LossyProxy(azure_server.endpoint_url.rpartition("/")[0], SEED) as proxy:

        def crashes(await_all: Callable[[], None]) -> None:
            for _ in range(4):
                proxy.weather = Weather()
                await_all()
                proxy.weather = NO_ANSWER
                time.sleep(2)
            proxy.weather = Weather()
            await_all()
            proxy.weather = CALM

        endure(at(azure_server.new_location(), azure_server.at(proxy.url).storage_options()), tmp_path, crashes)


@pytest.mark.hdfs
@pytest.mark.rare
def test_killed_servers_of_hdfs_lose_nothing_that_was_acknowledged(
    hdfs_server: HdfsServer, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    del hdfs_server  # skips where there is none
    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    server.start()
    location = server.new_location()
    try:

        def crashes(await_all: Callable[[], None]) -> None:
            for names in (("NameNode",), ("DataNode",), ("NameNode", "DataNode")):
                await_all()
                server.kill(*names)
                time.sleep(1)
                server.start(*names)
            await_all()
            root = RemoteStore(location, backoff=Backoff(60, 1.0, 1.0))
            for meta in root.list(""):  # until the NameNode has closed what its writers have not
                with suppress(MissingObjectError):  # the materializer deletes
                    root.get_range(meta.name, 0, min(1, meta.size_bytes))

        endure(at(location, {}), tmp_path, crashes)
    finally:
        server.kill()
