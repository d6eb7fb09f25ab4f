"""The error tree of varvite: each class says what the caller must do.

```
VarviteError
├── RetryableError              try again
│   ├── DidNotHappenError       the effect certainly did not take place
│   └── MayHaveHappenedError    the effect may have taken place: read before you retry
├── FencedError                 a newer run owns the job: stop, do not retry
├── CorruptDataError            stored bytes are wrong: `varvite verify JOB --repair` says what can be rebuilt
│   ├── MissingObjectError      an object that a checkpoint needs is gone
│   └── LocalDataError          local state is damaged: remove it, it is restored from the storage
├── IncompatibleError           format, schema or layout does not fit: use a matching version or migrate
│   └── MissingKeyError         an object is encrypted with a key that this process does not have: give it the key
├── StartError                  the stored state does not match Spark's progress (invariant I11)
│   ├── StateMissingError       Spark has progress, the storage has no state
│   ├── RewindError             Spark is behind the state
│   ├── GapError                Spark is ahead of the state
│   └── LineageError            the state belongs to another query or to other offsets
├── InvalidRequestError         fix the call or the configuration (also a ValueError)
├── UserFunctionError           the user's function raised
└── InvariantError              a bug in varvite: please report it
```

Losing a race is never an exception: put-if-absent returns a value. Message texts are not API; classes and
the context attributes are.
"""

from __future__ import annotations

from typing import Any, Final

from varvite.storage.visible_text import visible

CONTEXT_FIELDS: Final = ("job", "operator", "partition", "batch", "epoch", "object_name")


class VarviteError(Exception):
    """Base of every error that varvite raises on purpose.

    Args:
        message: What happened and what to do, one sentence each.
        context: Any of `CONTEXT_FIELDS`; None, or left out, where unknown.
    """

    def __init__(self, message: str, **context: Any) -> None:
        unknown = set(context) - set(CONTEXT_FIELDS)
        if unknown:
            raise TypeError(f"unknown error context {sorted(unknown)}; known: {CONTEXT_FIELDS}")
        super().__init__(message)
        self.message = message
        self.context: dict[str, Any] = {k: v for k, v in context.items() if v is not None}

    def with_context(self, **context: Any) -> VarviteError:
        """Add context that the raiser did not know; what is already set wins. Returns the error itself."""
        for field, value in context.items():
            if field not in CONTEXT_FIELDS:
                raise TypeError(f"unknown error context {field!r}")
            if value is not None:
                self.context.setdefault(field, value)
        return self

    def __str__(self) -> str:
        message = visible(self.message, keeps_lines=True)
        if not self.context:
            return message
        context = ", ".join(f"{f}={visible(str(self.context[f]))}" for f in CONTEXT_FIELDS if f in self.context)
        return f"{message} [{context}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.context, self.__dict__))


def _rebuild(
    cls: type[VarviteError], message: str, context: dict[str, Any], attributes: dict[str, Any]
) -> VarviteError:
    """Unpickle an error whatever the signature of its class."""
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    error.message, error.context = message, context
    return error


class RetryableError(VarviteError):
    """The operation failed for a transient reason: try it again."""


class DidNotHappenError(RetryableError):
    """The operation certainly had no effect: try it again as it is."""


class MayHaveHappenedError(RetryableError):
    """The operation may have had its effect: read back before trying again."""


class FencedError(VarviteError):
    """A newer run of the job has taken the chain over: stop; do not retry (invariant I6)."""


class CorruptDataError(VarviteError):
    """Stored bytes fail their checksum or do not parse: `varvite verify JOB --repair` says what can be rebuilt (I8)."""


class MissingObjectError(CorruptDataError):
    """An object that is referred to does not exist: bring it back, or see `varvite verify JOB --repair`."""


class LocalDataError(CorruptDataError):
    """Files of local state are damaged or gone: remove them, what they held is restored from the storage (I9)."""


class IncompatibleError(VarviteError):
    """Stored format, schema or layout does not fit this program: use a matching version or migrate the state."""


class MissingKeyError(IncompatibleError):
    """An object is encrypted with a key that this process does not have: give it the key."""


class StartError(VarviteError):
    """The stored state does not match Spark's progress; nothing was executed (invariant I11)."""


class StateMissingError(StartError):
    """Spark has committed batches but the storage has no state: point the job at its storage."""


class RewindError(StartError):
    """Spark's checkpoint is behind the state: restore the checkpoint location, or the state, explicitly."""


class GapError(StartError):
    """Spark's checkpoint is ahead of the state: batches would be lost; restore the storage, or the location."""


class LineageError(StartError):
    """The state was made by another query, or from other source offsets: use that job's own locations."""


class InvalidRequestError(VarviteError, ValueError):
    """The call or the configuration is wrong: correct it."""


class UserFunctionError(VarviteError):
    """The user's function raised; the cause, where it could be carried over, is `__cause__`."""


class InvariantError(VarviteError):
    """varvite broke one of its own invariants: this is a bug in varvite, please report it with the message."""
