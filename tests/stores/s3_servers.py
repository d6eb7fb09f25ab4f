"""S3 servers for tests: moto (AWS-like answers, in this process), Ceph RGW and SeaweedFS (real servers), and s3rver.

They are fixtures for the session; a test that uses one carries the marker `s3`. Buckets are shared, so every test
takes a location of its own.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from benchmarks.harness.servers import ceph, s3rver, seaweedfs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

BUCKET = "varvite-test"


@dataclass(frozen=True)
class S3Server:
    """Address of a server, and its credentials."""

    kind: str
    endpoint_url: str
    key: str
    secret: str
    engine: str = ""
    """The client of stores: obstore or s3fs; "": the default one."""

    def storage_options(self, **changed: Any) -> dict[str, Any]:
        """fsspec's options for this server."""
        options = {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint_url}
        chosen = {"engine": self.engine} if self.engine else {}
        return {**options, "client_kwargs": {"region_name": "us-east-1"}, **chosen, **changed}

    def job_conf(self, location: str) -> dict[str, str]:
        """Options of a job that keeps its checkpoints there."""
        options = {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint_url}
        return {"execution.checkpointing.dir": location, **{f"storage.option.{k}": v for k, v in options.items()}}

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    @contextmanager
    def client(self) -> Generator[Any]:
        """A plain client of S3, for what stores cannot do."""
        made = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
        )
        try:
            yield made
        finally:
            made.close()

    def make_bucket(self, name: str = BUCKET) -> None:
        """Create a bucket."""
        with self.client() as client:
            client.create_bucket(Bucket=name)


@pytest.fixture(params=["obstore", "s3fs"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each client of S3; skipped where its package is not installed."""
    name = str(request.param)
    pytest.importorskip(name)
    return name


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """moto on a free port, one PUT after another: between moto's look for an object and its writing others may come."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    writing, put_object = threading.Lock(), S3Response.put_object

    def alone(response: S3Response) -> Any:
        with writing:
            return put_object(response)

    with patch.object(S3Response, "put_object", alone):
        yield from _running(server)


def _running(server: ThreadedMotoServer) -> Iterator[S3Server]:
    server.start()
    try:
        host, port = server.get_host_and_port()
        found = S3Server("moto", f"http://{host}:{port}", "testkey", "testsecret")
        found.make_bucket()
        yield found
    finally:
        server.stop()


def skip_without_ceph() -> None:
    """Skip the test, with the reason, where Ceph is not installed."""
    missing = ceph.missing_programs()
    if missing:
        pytest.skip(f"Ceph is not installed (missing: {', '.join(missing)}); real-server S3 tests did not run")


@pytest.fixture(scope="session")
def ceph_cluster() -> Iterator[ceph.Ceph]:
    """The cluster behind `ceph_server`; skipped, with the reason, where Ceph is not installed."""
    skip_without_ceph()
    with ceph.running_ceph() as cluster:
        cluster.make_bucket(BUCKET)
        yield cluster


@pytest.fixture(scope="session")
def ceph_server(ceph_cluster: ceph.Ceph) -> S3Server:
    """Ceph RGW on a free port."""
    return S3Server("ceph", ceph_cluster.endpoint_url, ceph.ACCESS_KEY, ceph.SECRET_KEY)


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS, all of it in one process."""
    if not seaweedfs.PROGRAM.exists():
        pytest.skip("SeaweedFS is not installed (pip install 'varvite[test]'); its tests did not run")
    with seaweedfs.running_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as url:
        server = S3Server("seaweedfs", url, seaweedfs.ACCESS_KEY, seaweedfs.SECRET_KEY)
        server.make_bucket()
        yield server


@pytest.fixture(scope="session")
def careless_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """s3rver, which overwrites although told not to."""
    if not s3rver.PROGRAM.exists():
        pytest.skip("s3rver is not installed (deploy/install_npm_server.sh s3rver .s3rver); its test did not run")
    with s3rver.running_s3rver(tmp_path_factory.mktemp("s3rver"), BUCKET) as url:
        yield S3Server("s3rver", url, s3rver.ACCESS_KEY, s3rver.SECRET_KEY)
