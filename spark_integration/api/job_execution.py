"""Starts the jobs of an environment's `execute()`: its registered sinks, with defaults for what is not set.

A query writes the streams and the side outputs that one last stateful operator makes, or all streams of the same
sources without any. Others are queries of their own.

* Checkpoint storage: a temporary directory, removed when the query ends, as volatile as Flink's
  `JobManagerCheckpointStorage`. So it is for all jobs in BATCH mode, which keep no state.
* Spark's own progress: below `spark.sql.streaming.checkpointLocation`, if that is set, else in `_spark` in the
  checkpoint storage, if that is a local directory; else nowhere, for sources whose position is in the checkpoints.
* Parallelism: Spark's `spark.sql.shuffle.partitions`, if that is set, else one partition per core.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from varvite.materializer.options.driver import MATERIALIZER_MODE, PARALLELISM, RUNTIME_MODE
from varvite.spark_integration.api.session import is_one_machine
from varvite.spark_integration.api.writer import SHUFFLE_PARTITIONS, SPARK_LOCATION, StreamWriter, location_of_session
from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator, CollectSink, PrintSink
from varvite.spark_integration.connectors.several_sinks import SeveralSinks, StreamSinks
from varvite.spark_integration.options.checkpoint_storage import temporary_directory
from varvite.spark_integration.options.levels import session_level, session_properties
from varvite.spark_integration.plan.graph import has_several_outputs, last_operator_of, side_output_of
from varvite.spark_integration.plan.job import is_batch_job
from varvite.spark_integration.plan.stateless import outputs_of
from varvite.spark_integration.plan.transformations import KeyedTransformation, may_share_query, sources_of
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.options import DIRECTORY
from varvite.storage.object_stores.open import absolute_url, local_directory
from varvite.storage.options.table import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from varvite.spark_integration.api.query import VarviteStreamingQuery
    from varvite.spark_integration.api.writer import ProgramSettings
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.plan.transformations import Transformation
    from varvite.storage.options.table import OptionLevel

    Sinks: TypeAlias = Sequence[tuple[Transformation, Sink]]
    """Each with the transformation whose elements it takes."""

_log: Final = logging.getLogger(__name__)
DEFAULT_JOB: Final = "job"
_SPARK_DIRECTORY: Final = "_spark"
"""Not a valid name of a job, so it cannot collide with one."""


def job_name_of(name: str | None) -> str:
    """The directory name of a job with any name: "Word Count!" becomes "Word-Count"."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name or "").strip("-._")[:128] or DEFAULT_JOB


def queries_of(sinks: Sinks) -> list[Sinks]:
    """The sinks of each query, in the order of the program: streams of one last operator, or of sources alone; pure."""
    mains = dict.fromkeys(end for end, _ in sinks if side_output_of(end) is None)
    last = {end: last_operator_of(end) for end in mains}
    groups: dict[Transformation, list[tuple[Transformation, Sink]]] = {}
    of_sources: dict[tuple[Transformation, ...], Transformation] = {}
    for end, sink in sinks:
        side = side_output_of(end)
        group = of_sources.setdefault(tuple(sources_of(end)), end) if may_share_query(end) else end
        if side is not None:
            group = next((main for main in mains if last[main] is side.inputs[0]), side.inputs[0])
        if group in last and has_several_outputs(last[group]):
            group = next(main for main in mains if last[main] is last[group])
        groups.setdefault(group, []).append((end, sink))
    return list(groups.values())


def start_jobs(environment: ProgramSettings, sinks: Sinks, name: str | None) -> list[VarviteStreamingQuery]:
    """Start the queries of these sinks. Raises `InvalidRequestError` if there are none; then nothing runs."""
    if not sinks:
        raise nothing_to_execute()
    queries = queries_of(sinks)
    if len(queries) > 1:
        log_several(name, len(queries))
    in_batch_mode = is_batch(environment, sinks)
    started: list[VarviteStreamingQuery] = []
    try:
        for number, of_query in enumerate(queries):
            started.append(start_job(environment, of_query, job_of(name, number), in_batch_mode=in_batch_mode))
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def job_of(name: str | None, number: int) -> str:
    """The name of a query of a program: that of the program, from the second one on with its number."""
    return job_name_of(name) if number == 0 else f"{job_name_of(name)[:120]}-{number + 1}"


def log_several(name: str | None, count: int) -> None:
    """Log that a program is several queries."""
    _log.info(
        "job %s writes %d streams, so it is %d queries, %s to %s, each with a state and checkpoints of its own",
        job_name_of(name), count, count, job_of(name, 0), job_of(name, count - 1),
    )  # fmt: skip


def nothing_to_execute() -> InvalidRequestError:
    """The error of a program without sinks."""
    return InvalidRequestError("there is nothing to execute: end a stream with print(), or write it with start()")


def start_job(
    environment: ProgramSettings,
    sinks: Sinks,
    name: str | None,
    at_end: Callable[[bool], None] | None = None,
    *,
    in_batch_mode: bool,
) -> VarviteStreamingQuery:
    """Start the one query of these sinks.

    Args:
        environment: Its settings.
        sinks: Those of one query.
        name: Of the job.
        at_end: Called at the end of the query, as `StreamWriter.at_end` says.
        in_batch_mode: Flink's BATCH mode, in which no state is kept.

    Raises:
        InvalidRequestError: The query cannot be.
    """
    ends = list(dict.fromkeys(end for end, _ in sinks))
    mains = [end for end in ends if side_output_of(end) is None]
    outputs = outputs_of(ends) if len(ends) > 1 and may_share_query(ends[0]) else None
    first = outputs or (mains[0] if mains else ends[0])
    batch_directory = Path(temporary_directory()) if in_batch_mode else None
    state = None if batch_directory is None else str(batch_directory / "state")
    writer = StreamWriter(environment, first, batch_directory=state, is_mode_decided=True)
    writer.query_name(job_name_of(name))
    if at_end is not None:
        writer.at_end(at_end)
    set_defaults(environment, writer, job_name_of(name), batch_directory)
    for end, sink in sinks:
        if isinstance(sink, PrintSink):
            operators = [node for node in end.lineage() if isinstance(node, KeyedTransformation)]
            settings = environment.graph_settings.with_parallelism(writer.parallelism)
            sink.parallelism = settings.parallelism_of(operators[-1]) if operators else writer.parallelism
    if outputs is not None:
        return writer.foreach_batch(StreamSinks((ends.index(end), sink) for end, sink in sinks)).start()
    for end in ends:
        at_this_end = tuple(sink for node, sink in sinks if node is end)
        sink = at_this_end[0] if len(at_this_end) == 1 else SeveralSinks(at_this_end)
        writer = writer.foreach_batch(sink) if end is first else writer.another_output(end, sink)
    return writer.start()


def is_batch(environment: ProgramSettings, sinks: Sinks) -> bool:
    """True if a program with these sinks runs in Flink's BATCH mode. Raises `InvalidRequestError` if it cannot."""
    levels = environment.code_level(), session_level(session_properties(environment.spark))
    sources = [source for end, _ in sinks for source in sources_of(end)]
    if not is_batch_job(value_of(RUNTIME_MODE, levels), sources):
        return False
    if not is_one_machine(environment.spark):
        raise InvalidRequestError(
            f"BATCH mode is for one machine (spark.master=local[*]), and this program runs on several: set "
            f"{RUNTIME_MODE.key} to STREAMING"
        )
    return True


def set_defaults(
    environment: ProgramSettings, writer: StreamWriter, job: str, batch_directory: Path | None = None
) -> None:
    """Set what is not set, as the module says; `batch_directory`: place of all that a job in BATCH mode writes."""
    spark = environment.spark
    conf = session_properties(spark)
    levels: tuple[OptionLevel, ...] = (environment.code_level(), session_level(conf))
    storage = next((level.values[DIRECTORY.key] for level in levels if DIRECTORY.key in level.values), None)
    if storage is None or batch_directory is not None:
        temporary = batch_directory or Path(temporary_directory())
        reason = "no checkpoint storage is set" if batch_directory is None else "it is in BATCH mode"
        _log.info("job %s: %s, so its state is in %s until it ends", job, reason, temporary)
        writer.at_end(lambda _: shutil.rmtree(temporary, ignore_errors=True))
        writer.option(DIRECTORY.key, str(temporary / "state")).option(MATERIALIZER_MODE.key, "off")
        writer.option("checkpointLocation", str(temporary / "spark"))
    else:
        location = _progress_location(conf, str(storage), job)
        if location is not None:
            writer.option("checkpointLocation", location)
    if not any(PARALLELISM.key in level.values for level in levels) and SHUFFLE_PARTITIONS not in conf:
        writer.option(PARALLELISM.key, spark.sparkContext.defaultParallelism)


def _progress_location(conf: dict[str, str], storage: str, job: str) -> str | None:
    """Spark's location; None: nothing says it, and the storage is elsewhere, so that the sources must not need one."""
    location = location_of_session(conf.get(SPARK_LOCATION), job)
    if location is not None:
        return location
    directory = local_directory(absolute_url(storage))
    return None if directory is None else str(directory / _SPARK_DIRECTORY / job)


def collect(
    environment: ProgramSettings, end: Transformation, name: str | None, limit: int | None
) -> CloseableIterator | list[Any]:
    """Start a job and return its elements, all of them as they come or a list of at most `limit`."""
    if limit is not None and limit < 1:
        raise InvalidRequestError(f"limit is {limit!r}; give a number of elements, at least 1")
    sink = CollectSink(end.elements)
    sinks = [(end, sink)]
    query = start_job(environment, sinks, name, lambda _: sink.end(), in_batch_mode=is_batch(environment, sinks))
    elements = CloseableIterator(query, sink)
    if limit is None:
        return elements
    with elements:
        return [element for _, element in zip(range(limit), elements, strict=False)]
