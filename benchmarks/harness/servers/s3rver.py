"""s3rver, an S3 server that overwrites although told not to.

`deploy/install_npm_server.sh s3rver .s3rver` brings it.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness.servers.process import free_port, running_server

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM: Final = Path(__file__).resolve().parents[3] / ".s3rver" / "node_modules" / ".bin" / "s3rver"
ACCESS_KEY, SECRET_KEY = "S3RVER", "S3RVER"


@contextmanager
def running_s3rver(home: Path, bucket: str) -> Generator[str]:
    """The server, with its files in the directory `home` and a bucket; the URL of its endpoint."""
    port = free_port()
    command = [str(PROGRAM), "--directory", str(home), "--address", "127.0.0.1", "--port", str(port), "--silent",
               "--configure-bucket", bucket]  # fmt: skip
    endpoint_url = f"http://127.0.0.1:{port}"
    with running_server(command, endpoint_url):
        yield endpoint_url
