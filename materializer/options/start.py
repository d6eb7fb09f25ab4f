"""Options of a job's start from a checkpoint or savepoint."""

from __future__ import annotations

from typing import Any, Final

from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.layout import LATEST, is_savepoint_name
from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, OptionType, read_text

NO_CLAIM: Final = "NO_CLAIM"
CLONE: Final = "CLONE"


def _restore_point(value: Any) -> str | int:
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if text.lower() == LATEST:
        return LATEST
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if "/" in text or is_savepoint_name(text):
        return text
    raise InvalidRequestError(
        f"{value!r} names no checkpoint; use 'latest', the seq of a checkpoint (1, 2, ...), the name of a savepoint, "
        "or the location of a savepoint or of another job's checkpoint"
    )


def _claim_mode(value: Any) -> str:
    mode = read_text(value).upper()
    if mode in (NO_CLAIM, CLONE):
        return mode
    if mode in ("CLAIM", "LEGACY"):
        raise InvalidRequestError(
            f"{value!r} would let the job delete what it starts from; varvite copies the state and owns no source: "
            f"use {NO_CLAIM}, and delete the savepoint yourself when nobody needs it"
        )
    raise InvalidRequestError(f"{value!r} is unknown; use {NO_CLAIM} or {CLONE}")


START_PATH: Final = ConfigOption(
    key="execution.state-recovery.path",
    type=OptionType("`latest`, a seq, or the name or location of a savepoint", _restore_point),
    deprecated_keys=("execution.savepoint.path",),
    description="Start a query that has no state of its own, or that was rewound, from another state. `latest` or a "
    "seq is a checkpoint of the job; a name is one of its own savepoints. `<storage>/<job>/savepoints/<name>`, "
    "`<storage>/<job>/chain/<seq>` and `<storage>/<job>` (its newest checkpoint) are locations, whose state is copied. "
    "Once the query has a checkpoint of its own, the option does nothing.",
)
CLAIM_MODE: Final = ConfigOption(
    key="execution.state-recovery.claim-mode",
    type=OptionType(f"`{NO_CLAIM}` or `{CLONE}`", _claim_mode),
    default=NO_CLAIM,
    deprecated_keys=("execution.savepoint-restore-mode",),
    description="Copy or share the state that the query starts from. `NO_CLAIM`: its first entry holds a copy of the "
    "whole state. `CLONE`: it shares the objects of a job in the same storage, which keeps them until the materializer "
    "has replaced them. The query never owns them.",
)
IGNORE_UNCLAIMED: Final = ConfigOption(
    key="execution.state-recovery.ignore-unclaimed-state",
    type=BOOLEAN,
    default=False,
    deprecated_keys=("execution.savepoint.ignore-unclaimed-state",),
    description="Start although the checkpoint has state of operators that the job no longer has; that state is "
    "dropped.",
)
