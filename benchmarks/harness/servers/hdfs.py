"""A NameNode and a DataNode of HDFS, each in a process of its own.

`deploy/install_hadoop.sh .hadoop` brings the jar of the servers; what else they need is among PySpark's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.servers.process import free_port

JARS = Path(__file__).resolve().parents[3] / ".hadoop"
_SERVERS = {"NameNode": "namenode.NameNode", "DataNode": "datanode.DataNode"}
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_S = 90.0


def is_installed() -> bool:
    """True if the jar of the servers is there."""
    return (JARS / "version").exists()


@contextmanager
def running_hdfs(home: Path) -> Generator[HdfsServer]:
    """Both servers, with their data in `home`."""
    server = HdfsServer(home)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class HdfsServer:
    """The two servers, on free ports of the loopback, with their data in a directory."""

    def __init__(self, home: Path, **settings: Any) -> None:
        """Format the storage. `settings` of Hadoop have `_` for `.`."""
        self._home = home
        self.port, http, *data = (free_port() for _ in range(5))
        values: dict[str, Any] = {
            "fs.defaultFS": self.url,
            "dfs.namenode.http-address": f"127.0.0.1:{http}",
            "dfs.namenode.name.dir": home / "name",
            "dfs.datanode.data.dir": home / "data",
            "dfs.datanode.address": f"127.0.0.1:{data[0]}",
            "dfs.datanode.http.address": f"127.0.0.1:{data[1]}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data[2]}",
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.handler.count": 4,
            "dfs.heartbeat.interval": 1,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        home.mkdir(parents=True, exist_ok=True)
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (home / name).write_text(f"<configuration>{properties}</configuration>")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run(self._command("NameNode", "-format"), check=True, capture_output=True)

    @property
    def url(self) -> str:
        """The NameNode."""
        return f"hdfs://127.0.0.1:{self.port}"

    def storage_options(self, **changed: Any) -> dict[str, Any]:
        """Settings for this server: none are needed."""
        return changed

    def new_location(self) -> str:
        """A URL below which nothing is yet."""
        return f"{self.url}/varvite-test/{uuid.uuid4().hex}"

    def start(self, *names: str) -> None:
        """Start servers, all by default, and wait until a file can be written."""
        for name in names or _SERVERS:
            with (self._home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self._command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        self._wait()

    def kill(self, *names: str) -> None:
        """Kill servers, all by default."""
        for name in names or [*self.processes]:
            process = self.processes.pop(name)
            process.send_signal(signal.SIGKILL)
            process.wait(30)

    def _wait(self) -> None:
        from hdfs_native import Client

        client = Client(self.url, {"dfs.client.failover.max.attempts": "1"})
        deadline_s = time.monotonic() + _START_S
        while True:
            with suppress(OSError, RuntimeError):
                with client.create(f"/started/{uuid.uuid4().hex}") as file:
                    file.write(b"x")
                return
            for name, process in self.processes.items():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    log = (self._home / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} of HDFS does not answer: {log[-3000:]}")
            time.sleep(0.1)

    def _command(self, name: str, *arguments: str) -> list[str]:
        import pyspark

        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else "java"
        jars = f"{self._home}:{JARS}/*:{Path(pyspark.__file__).parent / 'jars'}/*"
        main = f"org.apache.hadoop.hdfs.server.{_SERVERS[name]}"
        return [java, *_JVM, "-cp", jars, main, *arguments]
