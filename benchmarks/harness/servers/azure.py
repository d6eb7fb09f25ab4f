"""Azurite, the emulator of Azure Blob Storage, in a process of its own.

`deploy/install_npm_server.sh azurite .azurite` brings it.
"""

from __future__ import annotations

import importlib
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.servers.process import free_port, running_server

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM = Path(__file__).resolve().parents[3] / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
ACCOUNT = "varvitetest"
KEY = "dmFydml0ZSB0ZXN0cyBoYXZlIHRoaXMga2V5"
CONTAINER = "varvite-test"


@dataclass(frozen=True)
class AzureServer:
    """Address of the emulator."""

    endpoint_url: str

    def storage_options(self, *, key: str = KEY, **changed: Any) -> dict[str, Any]:
        """Options of adlfs for this server."""
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


@contextmanager
def running_azurite(home: Path) -> Generator[AzureServer]:
    """Azurite, in memory; `home` is its working directory. Raises `ImportError` without adlfs."""
    blob: Any = importlib.import_module("azure.storage.blob")
    port = free_port()
    server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
    command = [str(PROGRAM), "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
               "--blobHost", "127.0.0.1", "--blobPort", str(port)]  # fmt: skip
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with running_server(command, server.endpoint_url, env=environment, cwd=home):
        with blob.BlobServiceClient.from_connection_string(server.storage_options()["connection_string"]) as client:
            client.create_container(CONTAINER)
        yield server
