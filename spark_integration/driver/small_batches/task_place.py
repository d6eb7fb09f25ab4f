"""The environment of Spark's Python workers, which user code in state workers is to find on either way.

A small Spark task tells it, once per application: the directory of the state workers, the import path, the files. It
starts the parent of the state workers, too. So these have the environment variables, the JVM to watch and the Python
that a pump would give them. The local properties are those of the thread that executes the run's batches.
"""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from pyspark import SparkContext, TaskContext

from varvite.spark_integration.transport.connection import WorkerConnector, WorkerLaunch
from varvite.spark_integration.transport.home import WorkerHome, executor_home
from varvite.spark_integration.transport.pump import task_environment
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from varvite.spark_integration.messages.protocol import BatchRequest
    from varvite.spark_integration.transport.wire import PumpEnvironment

_BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's name of the local property with the number of the batch."""
_RESOURCES: Final = "resource."
"""Beginning of the local properties that Spark adds to those of the thread."""


class TaskPlace(NamedTuple):
    """The place of Spark's tasks, as one of them has described it."""

    home: str
    """Directory of the state workers."""
    environment: PumpEnvironment
    """Of the Python worker; its task context is not that of a partition."""
    context: dict[str, Any]
    """The fields of the task's context."""


def describe_task(launch: WorkerLaunch, _: Iterable[Any] = ()) -> Iterator[TaskPlace]:
    """Describe the place of this Spark task, and see to it that the parent of the state workers runs."""
    context = TaskContext.get()
    if context is None:
        raise InvalidRequestError("this describes a Spark task, and runs outside of one; give it to mapPartitions")
    home = executor_home(os.environ)
    WorkerConnector(home, launch).ensure_parent()
    yield TaskPlace(str(home.path), task_environment(context), dict(vars(context)))


_Key = tuple["WorkerLaunch", tuple[str, ...]]
_described: Final[WeakKeyDictionary[SparkContext, dict[_Key, TaskPlace]]] = WeakKeyDictionary()
"""The places of each application, by the way to make workers and by the files on the import path."""


class TaskPlaces:
    """Finds the place of an application's tasks for one run; may be used by several threads."""

    def __init__(self, context: SparkContext, launch: WorkerLaunch | None = None) -> None:
        self._context = context
        self._launch = launch or WorkerLaunch()
        self._lock = Lock()
        self._added: tuple[str, ...] = ()
        self._place: TaskPlace | None = None

    def find(self) -> TaskPlace:
        """The place; a task describes it anew when the program has added files to the import path.

        Raises:
            Exception: The task has failed.
        """
        python: Any = self._context
        added = tuple(python._python_includes)  # noqa: SLF001  it has no getter
        with self._lock:
            place = self._place
            if place is None or added != self._added:
                place = self._place = self._with_properties(self._of_application(added))
                self._added = added
        return place

    def _of_application(self, added: tuple[str, ...]) -> TaskPlace:
        places = _described.setdefault(self._context, {})
        key = (self._launch, added)
        if key not in places:
            places[key] = self._describe()
        return places[key]

    def _with_properties(self, place: TaskPlace) -> TaskPlace:
        """The place with the local properties of this thread."""
        java: Any = self._context._jsc  # noqa: SLF001  PySpark has no getter for all of them
        properties: Any = java.sc().getLocalProperties()
        of_thread = {
            str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames().toArray()
        }
        of_task: dict[str, str] = place.context.get("_localProperties") or {}
        added = {name: value for name, value in of_task.items() if name.startswith(_RESOURCES)}
        return place._replace(context={**place.context, "_localProperties": added | of_thread})

    def connector(self) -> WorkerConnector:
        """Connects to the state workers of that place."""
        home = WorkerHome(Path(self.find().home))
        return WorkerConnector(home, self._launch, start_parent=self._describe)

    def environment(
        self, request: BatchRequest, partition: int, attempt_number: int, task_attempt: int
    ) -> PumpEnvironment:
        """The environment of one task. The slot of the batch stands for the number of its stage.

        Args:
            request: To all partitions.
            partition: Of the operator.
            attempt_number: Counts the attempts at it, from 0.
            task_attempt: No other task has the same.
        """
        place = self.find()
        context: Any = object.__new__(TaskContext)  # its constructor would make it the driver's own
        properties = {**(place.context.get("_localProperties") or {}), _BATCH_ID: str(request.batch)}
        vars(context).update(
            place.context,
            _stageId=request.slot,
            _partitionId=partition,
            _attemptNumber=attempt_number,
            _taskAttemptId=task_attempt,
            _localProperties=properties,
        )
        return msgspec.structs.replace(place.environment, task_context=pickle.dumps(context))

    def _describe(self) -> TaskPlace:
        tasks: Any = self._context.parallelize([0], 1)
        return tasks.mapPartitions(partial(describe_task, self._launch)).collect()[0]
