"""Named places where a test may kill the process: the crash matrix needs SIGKILL at every step of the protocol.

`VARVITE_FAIL_POINT=<name>:<count>:<marker file>` kills the process with SIGKILL the `count`-th time (from 1) that it
reaches `name`, once: the marker file is created first, and where it exists nothing happens. With
`<name>@stop:<count>:<marker file>` SIGSTOP stops it instead. Without the variable a fail point is one comparison.

It is in the product because what it tests is there: `NAMES` lists the places in state worker, driver and materializer.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "VARVITE_FAIL_POINT"
NAMES: Final = (
    "worker.after_early_part",
    "worker.before_segment_upload",
    "worker.after_segment_upload",
    "worker.before_summary",
    "worker.after_summary",
    "driver.before_commit",
    "driver.after_commit",
    "driver.in_sink",
    "driver.after_sink",
    "materializer.during_fold",
    "materializer.during_upload",
    "materializer.before_publish",
    "materializer.after_publish",
    "materializer.during_truncate",
)
"""All fail points; the crash matrix goes through all of them."""

_STOP: Final = "@stop"
_armed: tuple[str, int, str, signal.Signals] | None = None
_reached: int = 0


def arm(setting: str | None) -> None:
    """Read the setting (the variable's value); None disarms. Raises ValueError on a bad one."""
    global _armed, _reached  # noqa: PLW0603  one switch for the whole process is the point
    _reached = 0
    if not setting:
        _armed = None
        return
    place, count, marker = setting.split(":", 2)
    name, sent = place.removesuffix(_STOP), signal.SIGSTOP if place.endswith(_STOP) else signal.SIGKILL
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}: no fail point {name!r}; there are {', '.join(NAMES)}")
    _armed = (name, int(count), marker, sent)


def fail_point(name: str) -> None:
    """Kill or stop this process if the place is armed."""
    if _armed is None or _armed[0] != name:
        return
    _kill_if_due()


def _kill_if_due() -> None:
    global _reached  # noqa: PLW0603  see `arm`
    _reached += 1
    if _armed is None:
        return
    marker = Path(_armed[2])
    if _reached < _armed[1] or marker.exists():
        return
    marker.touch()
    os.kill(os.getpid(), _armed[3])


arm(os.environ.get(VARIABLE))
