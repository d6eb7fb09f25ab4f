"""The name of this process, for people: whoever finds that another one has taken a job over reads it there."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def process_name(command: str | None = None) -> str:
    """Host, process id and command.

    Args:
        command: The command; None: the name of the program, without its arguments, which may hold secrets.
    """
    program = command or Path(sys.argv[0] if sys.argv and sys.argv[0] else sys.executable).name
    return f"{program!r} on host {platform.node() or 'unknown'}, process {os.getpid()}"
