"""Finds the executor's JVM among the ancestors of a Python worker, and notices when it ends.

On Linux a pidfd tells the end at once and cannot be fooled by a reused process id; elsewhere the process is polled.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LINEAGE_MAX: Final = 64


@dataclass(frozen=True)
class ProcessInfo:
    """A process among the ancestors."""

    pid: int
    name: str
    """Short name of the program."""
    command: str
    """Its command line, as far as it can be read."""


def ancestors(pid: int) -> Iterator[ProcessInfo]:
    """The parent of `pid`, its parent, and so on up to the first process of the system."""
    for _ in range(_LINEAGE_MAX):
        pid = _parent(pid)
        if pid <= 0:
            return
        yield _describe(pid)


def find_jvm(pid: int, lineage: Callable[[int], Iterator[ProcessInfo]] = ancestors) -> int:
    """Process id of the executor's JVM that the Python worker `pid` works for.

    That is the nearest ancestor called java, or else the process that started PySpark's daemon.

    Raises:
        InvalidRequestError: there is neither: the process is not a Python worker, or its executor is gone.
    """
    seen: list[ProcessInfo] = []
    starter: int | None = None
    for process in lineage(pid):
        if process.name == "java" or process.name.startswith("java."):
            return process.pid
        if seen and "pyspark" in seen[-1].command and "daemon" in seen[-1].command and process.pid > 1:
            starter = process.pid
        seen.append(process)
    if starter is not None:
        return starter
    chain = " <- ".join(f"{p.name}({p.pid})" for p in seen)
    raise InvalidRequestError(
        f"process {pid} has no JVM among its ancestors ({chain}): it is not a Python worker of a Spark executor, "
        "or the executor is gone; run this in a Spark task"
    )


class ProcessWatch:
    """Tells when a process of this user has ended."""

    def __init__(self, pid: int, descriptor: int | None) -> None:
        """Watch `pid`; `descriptor` is its pidfd, None where the system has none."""
        self.pid = pid
        self.descriptor = descriptor

    @classmethod
    def of(cls, pid: int) -> ProcessWatch:
        """Watch a living process. Raises ProcessLookupError if there is none."""
        if hasattr(os, "pidfd_open"):
            try:
                return cls(pid, os.pidfd_open(pid))
            except ProcessLookupError:
                raise
            except OSError:  # a kernel before 5.3, or a sandbox that forbids the call
                pass
        os.kill(pid, 0)
        return cls(pid, None)

    def ended(self) -> bool:
        """Has the process ended? Does not wait."""
        if self.descriptor is not None:
            poller = select.poll()
            poller.register(self.descriptor, select.POLLIN)
            return bool(poller.poll(0))
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def close(self) -> None:
        """Stop watching."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _parent(pid: int) -> int:
    if not sys.platform.startswith("linux"):
        return int(_ps(pid, "ppid") or 0)
    try:
        # The name in parentheses may itself hold spaces and parentheses: the fields begin after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])


def _describe(pid: int) -> ProcessInfo:
    if not sys.platform.startswith("linux"):
        return ProcessInfo(pid, Path(_ps(pid, "comm")).name, _ps(pid, "command"))
    process = Path(f"/proc/{pid}")
    try:
        name = (process / "comm").read_text(errors="replace").strip()
        command = (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ProcessInfo(pid, "?", "")
    return ProcessInfo(pid, name, command)


def _ps(pid: int, column: str) -> str:
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
