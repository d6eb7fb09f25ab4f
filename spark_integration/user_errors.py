"""A user function's exception as it reaches the user: with key, operator and batch, and the original as its cause.

State that the function declares in `open` otherwise than it is stored is another matter: that error is raised as it is.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from varve.storage.errors import IncompatibleError, UserFunctionError

if TYPE_CHECKING:
    from varve.spark_integration.protocol import Summary


def user_function_error(summary: Summary, job: str, batch: int) -> UserFunctionError | IncompatibleError:
    """The error to raise for a summary that carries one."""
    error = summary.error
    if error is None:
        raise ValueError("the summary carries no error")
    key = "" if error.key is None else f" at key {error.key}"
    raised = UserFunctionError(
        f"the user's function raised {error.exception_type}: {error.message}{key}\n\n{error.traceback}",
        job=job,
        operator=summary.operator,
        partition=summary.partition,
        batch=batch,
    )
    if error.pickled is not None:
        try:
            cause = pickle.loads(error.pickled)  # noqa: S301  made by this job's own worker from its own function
        except Exception:  # noqa: BLE001  a class that only exists on the executor
            cause = None
        if isinstance(cause, IncompatibleError) and error.key is None:
            cause.with_context(job=job, operator=summary.operator, partition=summary.partition, batch=batch)
            return cause
        if isinstance(cause, BaseException):
            raised.__cause__ = cause
    return raised
