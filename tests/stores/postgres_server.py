"""A real PostgreSQL server for tests: a cluster of its own in a temporary directory.

`postgres` is one server for the tests of a process; each test has a database of its own. A test that stops a server
starts `Server` itself. `deploy/install_postgres.sh` installs the programs; without them such tests are skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

START_S = 60.0


def _programs() -> Path | None:
    """The directory of the server's programs: Debian has them beside the path."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def skip_without_postgres() -> None:
    """Skip the test, with the reason, where PostgreSQL is missing."""
    if _programs() is None:
        pytest.skip("PostgreSQL is not installed (deploy/install_postgres.sh); tests of a real server did not run")


class Server:
    """A server on a free port of the loopback."""

    def __init__(self) -> None:
        """Make the cluster; `start` starts the server."""
        skip_without_postgres()
        self._bin = _programs()
        # Not below pytest's directory, which is closed to the user that the server runs as if the tests are root's.
        self.home = Path(tempfile.mkdtemp(prefix="varvite-postgres-"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:  # the server refuses to run as root
            user = next(u for u in pwd.getpwall() if u.pw_name in {"postgres", "nobody"} and u.pw_uid)
            os.chown(self.home, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        command = [f"{self._bin}/initdb", "-D", f"{self.home}/data", "-U", "varvite", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*command, "--no-sync", "--no-locale"], check=True, capture_output=True, cwd="/", **self._as)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def conninfo(self, database: str = "postgres") -> str:
        return f"postgresql://varvite@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        import psycopg

        command = [f"{self._bin}/postgres", "-D", f"{self.home}/data", "-p", str(self.port), "-F"]
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=40")
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *(part for setting in settings for part in ("-c", setting))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **self._as,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while True:
            assert self.process.poll() is None, (self.home / "server.log").read_text()[-3000:]
            try:
                psycopg.connect(self.conninfo(), connect_timeout=2).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def end(self, with_signal: signal.Signals = signal.SIGQUIT) -> None:
        """End the process: by default at once, as a crash."""
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait(30)
            self.process = None

    def new_database(self) -> str:
        """The address of a new, empty database."""
        import psycopg

        name = f"d{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self.conninfo(name)


@contextmanager
def running_server() -> Generator[Server]:
    """A server of the test's own."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(server.home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this process."""
    with running_server() as server:
        yield server
