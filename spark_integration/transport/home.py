"""The directory of an executor's state workers: names in it, and thin I/O on its lock and sockets.

It lies in the executor's own block-manager directory, so it vanishes with it (I9). One directory, and so one parent
process, serves one Python environment: workers of another interpreter or another varvite must not be shared.

```
<block manager directory>/varvite-<hash>/
  lock                 held (flock) while the parent is looked for or started
  parent.sock          the parent
  w-<worker>.sock      one state worker; <worker> is <job id>-<partition>
  w-<worker>.lock      held (flock) by the process that is this state worker
  workers.log(.1)      output of all of them
  state/<job id>/<operator>/<low>-<high>/     working state of key groups [low, high)
```
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from varvite.spark_integration.processes import keep_from_forks
from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import make_private

try:
    import fcntl
except ImportError as error:
    raise ImportError("varvite's state workers need fork, flock and Unix sockets: run executors on Linux") from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping


WIRE_VERSION: Final = 4
"""Version of the messages of pump, parent and worker; part of the directory's name."""
PARENT_SOCKET: Final = "parent.sock"
_TAIL_BYTES: Final = 2000
SOCKET_BUFFER_BYTES: Final = 1 << 20
"""Asked for on both ends; the kernel grants at most net.core.wmem_max."""
_BACKLOG: Final = 128
_PLAIN_ADDRESS_BYTES: Final = 100
"""Longest socket path that every system takes (macOS 104, Linux 108, with the final NUL)."""
_SEGMENT_LETTERS_MAX: Final = 200
_PLAIN_JOB: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")


@dataclass(frozen=True)
class WorkerHome:
    """Names inside one state workers' directory."""

    path: Path

    @property
    def lock_path(self) -> Path:
        """Guards looking for and starting the parent."""
        return self.path / "lock"

    @property
    def log_path(self) -> Path:
        """Output and log of the parent and the workers."""
        return self.path / "workers.log"

    @property
    def old_log_path(self) -> Path:
        """The log before it was last cut."""
        return self.path / "workers.log.1"

    def worker_lock_path(self, worker: str) -> Path:
        """Held by the one process that is this worker."""
        return self.path / f"w-{worker}.lock"

    def state_directory(self, job_id: str, operator: str, low: int, high: int) -> Path:
        """Directory of the working state of key groups `[low, high)` of an operator; not created here."""
        return self.path / "state" / _segment(job_id) / _segment(operator) / f"{low:05d}-{high:05d}"

    def create(self) -> None:
        """Make the directory if it is missing; only this user may enter it.

        Raises:
            FileNotFoundError: the block-manager directory is gone, and with it the executor.
            InvalidRequestError: somebody else made it.
        """
        make_private(self.path)


def executor_home(environment: Mapping[str, str]) -> WorkerHome:
    """The home of this Python worker's executor, from the environment of a Python worker.

    Raises:
        InvalidRequestError: not called in a Python worker of a Spark executor.
    """
    directories = [d for d in environment.get("SPARK_LOCAL_DIRS", "").split(",") if d]
    if not directories:
        raise InvalidRequestError(
            "SPARK_LOCAL_DIRS is not set, so this is not a Python worker of a Spark executor; "
            "call this in a Spark task, or pass a WorkerHome"
        )
    return WorkerHome(Path(directories[0]) / f"varvite-{_environment_hash()}")


def import_path(entries: Iterable[str]) -> tuple[str, ...]:
    """Entries of `sys.path` for a process with another working directory.

    Spark puts what `--py-files` brings there relative to the executor's directory.
    """
    return tuple(os.path.abspath(entry) for entry in entries if entry)  # noqa: PTH100  `Path.resolve` follows links


def worker_name(job_id: str, partition: int) -> str:
    """Name of the state worker of one partition of a job; it is part of file names."""
    if not _PLAIN_JOB.fullmatch(job_id):
        job_id = hashlib.sha256(job_id.encode()).hexdigest()[:32]
    return f"{job_id}-{partition}"


def worker_socket(worker: str) -> str:
    """Socket name of a state worker."""
    return f"w-{worker}.sock"


def log_tail(home: WorkerHome, size_bytes: int = _TAIL_BYTES) -> str:
    """The end of the log of the parent and its workers; "" if there is none."""
    try:
        with home.log_path.open("rb") as log:
            log.seek(max(0, home.log_path.stat().st_size - size_bytes))
            return log.read(size_bytes).decode(errors="replace")
    except OSError:
        return ""


def listen(home: WorkerHome, name: str) -> socket.socket:
    """Bind and listen; an older socket of this name is replaced. Raises OSError."""
    (home.path / name).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(home, name) as address:
            server.bind(address)
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def connect(home: WorkerHome, name: str, *, timeout_s: float | None = None) -> socket.socket | None:
    """A connection, or None if no process listens there. Raises other OSErrors.

    `timeout_s` is for connecting and all that follows; 0: waiting is an error, None: no timeout.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout_s)
    try:
        with _address(home, name) as address:
            client.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    except BaseException:
        client.close()
        raise
    enlarge_buffers(client)
    return client


def enlarge_buffers(connection: socket.socket) -> None:
    """Ask for buffers that hold a usual Arrow batch."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)


def socket_inode(home: WorkerHome, name: str) -> int | None:
    """Identity of a bound socket's directory entry; None if it is gone."""
    try:
        return (home.path / name).stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Generator[bool]:
    """Hold an flock on the file at `path`; yields False at once if it is taken and `wait` is off. Raises OSError."""
    while True:
        with FileIO(path, "w", opener=_lock_file) as file:
            keep_from_forks(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            if _is_at(path, file.fileno()):  # else the file was deleted while this process waited for it
                yield True
                return


def _lock_file(path: str, _: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _address(home: WorkerHome, name: str) -> Generator[str]:
    """An address for the socket `name`, whatever the length of the home's path."""
    plain = str(home.path / name)
    if len(plain.encode()) <= _PLAIN_ADDRESS_BYTES:
        yield plain
        return
    if not sys.platform.startswith("linux"):
        raise InvalidRequestError(
            f"{plain!r} is too long for a Unix socket on this system; set spark.local.dir to a shorter path"
        )
    directory = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)


def _environment_hash() -> str:
    """Tells Python environments apart that must not share processes."""
    package = str(Path(__file__).parent)
    return hashlib.sha256(f"{WIRE_VERSION}\0{sys.executable}\0{package}".encode()).hexdigest()[:8]


def _segment(text: str) -> str:
    """Any text as one directory name."""
    name = quote(text, safe="").replace(".", "%2E")
    return name if len(name) <= _SEGMENT_LETTERS_MAX else hashlib.sha256(text.encode()).hexdigest()


def executor_key(home: Path) -> str:
    """Key of the executor of a state workers' directory: the name of its block-manager directory."""
    return home.parent.name
