"""Azurite, the emulator of Azure Blob Storage, for tests, in a process of its own.

`deploy/install_azurite.sh .azurite` brings it. A test that uses it carries the marker `azure`, and is skipped, with the
reason, where it or adlfs is not installed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.harness.ceph import free_port
from tests.stores.clouds.server_process import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).resolve().parents[3] / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
ACCOUNT = "varvitetest"
KEY = "dmFydml0ZSB0ZXN0cyBoYXZlIHRoaXMga2V5"
CONTAINER = "varvite-test"


@dataclass(frozen=True)
class AzureServer:
    """Address of the emulator."""

    endpoint_url: str

    def storage_options(self, *, key: str = KEY, **changed: Any) -> dict[str, Any]:
        """adlfs's options for this server."""
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={self.endpoint_url};"
        )
        return {"connection_string": connection, **changed}

    def at(self, url: str) -> AzureServer:
        """The same server behind a proxy."""
        return AzureServer(f"{url}/{ACCOUNT}")

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        return f"az://{CONTAINER}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azurite on a free port, in memory."""
    if not PROGRAM.exists():
        pytest.skip("Azurite is not installed (deploy/install_azurite.sh .azurite); tests of Azure did not run")
    pytest.importorskip("adlfs")
    from azure.storage.blob import BlobServiceClient

    port = free_port()
    server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
    command = [str(PROGRAM), "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
               "--blobHost", "127.0.0.1", "--blobPort", str(port)]  # fmt: skip
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    home = tmp_path_factory.mktemp("azurite")
    with running_server(command, server.endpoint_url, env=environment, cwd=home):
        with BlobServiceClient.from_connection_string(server.storage_options()["connection_string"]) as client:
            client.create_container(CONTAINER)
        yield server
