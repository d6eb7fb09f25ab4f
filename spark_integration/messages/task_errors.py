"""What failed in a task, told from the text that Spark keeps of it: a `VarveError` again, which the user can catch.

Spark tries a task that raises several times; when it gives up, the driver gets the last attempt's traceback as text
inside a Java exception. A storage that a state worker cannot read, or a full local disk, would reach the user as that.
"""

from __future__ import annotations

import re
from typing import Final

from varve.storage import errors
from varve.storage.errors import CONTEXT_FIELDS, VarveError

WORKER_NOTE: Final = "In the state worker:"
"""Heads the note of an error that a state worker raised: its traceback there."""
TRIED_AGAIN: Final = (
    "Spark tries the task again while it has attempts left (spark.task.maxFailures; local[N] makes just one); if it "
    "has none, start the query again"
)
"""What becomes of a task without its state worker, and what to do; nothing was changed."""
_RAISED: Final = re.compile(
    rf"^(?:.*: )?varve\.storage\.errors\.(\w+): (.*?)(?: \[((?:{'|'.join(CONTEXT_FIELDS)})=[^\]\n]*)\])?$", re.MULTILINE
)
_NUMBERS: Final = frozenset({"partition", "batch", "epoch"})


def task_error(failure: Exception) -> VarveError | None:
    """The error that a task raised, with what it knew of its context; None if it was none of ours."""
    text = str(failure).partition(f"\n{WORKER_NOTE}\n")[0]
    found = list(_RAISED.finditer(text))
    if not found:
        return None
    name, message, context = found[-1].groups()  # the last one of a chain of causes is what was raised
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, VarveError)):
        return None
    return kind(message).with_context(**_context(context or ""))


def _context(text: str) -> dict[str, str | int]:
    pairs = (pair.partition("=") for pair in text.split(", ") if pair)
    return {
        field: int(value) if field in _NUMBERS and value.isdigit() else value
        for field, _, value in pairs
        if field in CONTEXT_FIELDS
    }
