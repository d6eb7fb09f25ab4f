"""SeaweedFS, an S3 server, in one process. `pip install 'varvite[test]'` brings it."""

from __future__ import annotations

import json
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness.servers.process import free_port, running_server

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "weed"
ACCESS_KEY, SECRET_KEY = "varvitetest", "varvitesecret"
_PARTS: Final = ("master", "volume", "filer", "s3")
# Catalogues on fixed ports: a second server on this machine would not start.
_WITHOUT: Final = ("-s3.port.iceberg=0", "-s3.port.lance=0")
_RIGHTS: Final = ("Admin", "Read", "Write", "List", "Tagging")


@contextmanager
def running_seaweedfs(home: Path) -> Generator[str]:
    """The server, with its files in the directory `home`, which exists; the URL of its endpoint."""
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": list(_RIGHTS),
    }
    config = home / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = {f"-{part}.port{kind}={free_port()}" for part in _PARTS for kind in ("", ".grpc")}
    port = free_port()
    command = [str(PROGRAM), f"-logdir={home}", "server", "-s3", f"-dir={home}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
               "-master.telemetry=false", "-volume.max=0", "-master.volumeSizeLimitMB=256", *_WITHOUT,
               f"-s3.config={config}", f"-s3.port={port}",
               *(text for text in ports if not text.startswith("-s3.port="))]  # fmt: skip
    endpoint_url = f"http://127.0.0.1:{port}"
    with running_server(command, endpoint_url, cwd=home):
        yield endpoint_url
