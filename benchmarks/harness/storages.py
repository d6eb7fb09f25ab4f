"""Storages of the jobs of `make bench`: the local disk, and Ceph RGW with latency added to every request."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import object_files
from benchmarks.harness.s3_proxy import S3Proxy
from benchmarks.harness.servers.ceph import ACCESS_KEY, SECRET_KEY, running_ceph
from benchmarks.harness.session import session
from varvite import StreamExecutionEnvironment

LOCAL, S3 = "local", "s3"
STORAGES = (LOCAL, S3)
LATENCY_MS = 20
"""Added to every request to S3, of varvite and of Spark."""
BUCKET = "varvite-bench"
_ENDPOINT, _DIRECT = "VARVITE_BENCH_S3_ENDPOINT", "VARVITE_BENCH_S3_WITHOUT_LATENCY"


@contextmanager
def s3_with_latency(*, durable: bool) -> Generator[None]:
    """Ceph RGW behind a proxy, which the programs that this process starts will find.

    `durable`: objects are on disk instead of in memory, so they may have more than 2 GB.
    """
    with running_ceph(durable=durable) as ceph, S3Proxy(ceph.endpoint_url, LATENCY_MS) as proxy:
        ceph.make_bucket(BUCKET, is_public=True)  # Spark's side does not sign its requests
        os.environ |= {_ENDPOINT: proxy.url, _DIRECT: ceph.endpoint_url}
        try:
            yield
        finally:
            del os.environ[_ENDPOINT], os.environ[_DIRECT]


def server_without_latency() -> str:
    """The URL of Ceph RGW itself, for a proxy that only counts."""
    return os.environ[_DIRECT]


@dataclass(frozen=True)
class StateLocation:
    """Place of varvite's checkpoints."""

    url: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    """fsspec's."""

    @classmethod
    def new(cls, storage: str, work: Path) -> StateLocation:
        """A place of its own; on local disk below `work`."""
        if storage == LOCAL:
            return cls(f"file://{work / 'state'}")
        return s3_location(os.environ[_ENDPOINT])

    def configure(self, env: StreamExecutionEnvironment) -> None:
        """Let an environment's jobs keep their checkpoints there."""
        env.configure("execution.checkpointing.dir", self.url)
        env.configure({f"storage.option.{name}": value for name, value in self.options.items()})


def s3_location(endpoint_url: str) -> StateLocation:
    """A place of its own in the bucket, behind that endpoint."""
    options = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": endpoint_url}
    return StateLocation(f"s3://{BUCKET}/{uuid.uuid4().hex}", options)


def spark_location(storage: str, directory: Path) -> str:
    """Place of Spark's checkpoint, of its own queries and of varvite's."""
    return str(directory) if storage == LOCAL else f"{object_files.SCHEME}://{directory}"


def storage_session(storage: str, work: Path, more: Mapping[str, str] | None = None) -> Any:
    """A session that knows `spark_location`, with these further properties."""
    if storage == LOCAL:
        return session(more)
    endpoint = f"{os.environ[_ENDPOINT]}/{BUCKET}/spark"
    return object_files.session_with_objects(work / "classes", LATENCY_MS, more, endpoint)
