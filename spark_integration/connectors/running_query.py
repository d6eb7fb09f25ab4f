"""Spark's own handle of the query that a job runs as, for what PySpark does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunningQuery:
    """A query of a session, by its name."""

    def __init__(self, session: SparkSession, name: str) -> None:
        self.name = name
        self._session: Any = session
        self._execution: Any = None

    def execution(self) -> Any:
        """Spark's `StreamExecution`. Raises `DidNotHappenError` if the query does not run, `Py4JError`."""
        if self._execution is None:
            for query in self._session._jsparkSession.streams().active():  # noqa: SLF001  Spark's own, not PySpark's
                if query.name() == self.name:
                    self._execution = query.streamingQuery()
                    break
            else:
                raise DidNotHappenError(f"Spark does not run the query {self.name!r} any more; start it again")
        return self._execution
