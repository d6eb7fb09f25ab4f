"""The sidecar on S3: in this process, and as a child that gets its credentials through its standard input."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from benchmarks.harness.s3_proxy import Reply, Request, S3Proxy
from tests.jobs.committing_job import CommittingJob, random_batch, restored_cells
from tests.jobs.materializer_world import World
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.service.child_process import start_materializer_process
from varvite.storage.clock import SystemClock
from varvite.storage.format import layout
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores.s3_servers import S3Server

pytestmark = pytest.mark.s3
PATIENCE_S = 60.0


class ChainRequests(S3Proxy):
    """Counts the requests for entries of the chain."""

    gets = lists = 0

    async def exchange(self, request: Request) -> Reply | None:
        self.gets += request.kind == "GET" and f"/{layout.CHAIN}" in request.key
        self.lists += request.kind == "LIST" and layout.CHAIN in unquote(request.target)
        return await self.forward(request)


def server_of(request: pytest.FixtureRequest, kind: str) -> S3Server:
    return request.getfixturevalue(f"{kind}_server")


@pytest.mark.parametrize("kind", ["moto", "ceph"])
def test_the_log_is_folded_adopted_and_collected_on_s3(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    server = server_of(request, kind)
    world = World(tmp_path, open_store(server.new_location(), server.storage_options()))
    sidecar = world.sidecar()
    for _ in range(2):
        world.commit(4, upload=True)
        assert sidecar.fold(), sidecar.events.all
        world.check()
    world.commit(2)
    assert len(world.job.adopted) == 2
    sidecar.fold()
    world.check()
    world.check_no_garbage()
    world.close()


@pytest.mark.sidecar
def test_a_child_gets_its_credentials_and_shows_them_to_nobody(moto_server: S3Server, tmp_path: Path) -> None:
    location = moto_server.new_location()
    store = PrefixedStore(open_store(location, moto_server.storage_options()), "job")
    job = CommittingJob(store, SystemClock())
    job.start()
    config = MaterializerConfig(
        storage_url=location, storage_options=moto_server.storage_options(), job="job", interval_ms=100, poll_ms=100,
        working_directory=tmp_path / "work",
    )  # fmt: skip
    rng = random.Random(5)
    log, status = tmp_path / "log", tmp_path / "status"
    with start_materializer_process(config, log_path=log, status_path=status) as child:
        deadline = time.monotonic() + PATIENCE_S
        while not job.adopted:
            assert time.monotonic() < deadline, log.read_text()
            job.commit(random_batch(rng))
            time.sleep(0.1)
        assert child.stop() == 0, log.read_text()
    assert moto_server.secret not in log.read_text() + status.read_text()
    assert job.run is not None
    base = job.run.state.base
    assert base is not None
    assert restored_cells(store, job.run.record.job_id, base.link, tmp_path / "c") == job.models[base.link].cells()
    job.close()


@pytest.mark.sidecar
def test_a_child_asks_the_storage_for_no_entry_that_the_driver_announces(moto_server: S3Server, tmp_path: Path) -> None:
    location, options = moto_server.new_location(), moto_server.storage_options()
    store = PrefixedStore(open_store(location, options), "job")
    job = CommittingJob(store, SystemClock())
    job.start()
    rng = random.Random(5)
    status = tmp_path / "status"
    with ChainRequests(moto_server.endpoint_url) as proxy:
        config = MaterializerConfig(
            storage_url=location, storage_options={**options, "endpoint_url": proxy.url}, job="job", interval_ms=None,
            log_batches=40, poll_ms=100, working_directory=tmp_path / "work",
        )  # fmt: skip
        with start_materializer_process(config, log_path=tmp_path / "log", status_path=status) as child:
            deadline = time.monotonic() + PATIENCE_S
            while not status.exists() or b'"materialized"' not in status.read_bytes():
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                commit = job.commit(random_batch(rng))
                assert job.run is not None
                child.announce(commit.seq, store.get(layout.chain(commit.seq)))
                time.sleep(0.05)
            assert child.stop() == 0, (tmp_path / "log").read_text()
    assert job.run is not None
    assert job.run.state.base is not None
    assert job.run.state.base.seq > 40
    assert 0 < proxy.lists < 10, "at its start, and for the collector"
    # Before the first announcement, for the collector, and where it looks just between a commit and its announcement.
    assert proxy.gets < job.run.state.base.seq, "without announcements it is several for each entry"
    job.close()
