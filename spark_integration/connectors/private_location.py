"""Spark's checkpoint location of a query that names none: a directory of this machine, anew for each run.

The chain has all that it would keep. Beside the locations of a job is the note of its last sink (`sink_note`), which
stays.

Invariants: I9 (all of it is a cache).
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from typing import Final

from varvite.materializer.options.driver import PROGRESS
from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import TemporaryDirectory, make_private, user_directory

_log: Final = logging.getLogger(__name__)
_DIRECTORY: Final = "locations"
_PURPOSE: Final = "location"


class PrivateLocation:
    """The location of one run.

    Args:
        storage_url: The job's storage.
        job: Its name.
    """

    def __init__(self, storage_url: str, job: str) -> None:
        try:
            of_user = user_directory(_DIRECTORY, f"checkpointLocation, or {PROGRESS.key}")
            directory = of_user / hashlib.sha256(f"{storage_url}/{job}".encode()).hexdigest()[:32]
            make_private(directory)
        except (InvalidRequestError, OSError) as error:
            _log.warning(
                "job %s: a sink that does not say what it holds gets the last batch once more at the next start: %s",
                job, error,
            )  # fmt: skip
            self._root: TemporaryDirectory | None = TemporaryDirectory("locations")
            directory = self._root.path
        else:
            self._root = None
        for left in directory.glob(f"varvite-{_PURPOSE}-*"):
            if not _is_alive(left.name.split("-")[2]):  # killed, so that nobody has deleted it
                shutil.rmtree(left, ignore_errors=True)
        self._directory = TemporaryDirectory(f"{_PURPOSE}-{os.getpid()}", directory)

    @property
    def url(self) -> str:
        """The location."""
        return f"file://{self._directory.path}"  # as Hadoop takes it, which decodes nothing

    def cleanup(self) -> None:
        """Delete it: the run has ended. May be called twice."""
        self._directory.cleanup()
        if self._root is not None:
            self._root.cleanup()


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
