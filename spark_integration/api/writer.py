"""`StreamWriter`: the end of a stream, as Spark's `writeStream`; its `start` checks the query as a whole and starts it.

`DataStreamSink` is the end of a stream that `DataStream.print` returns, for PyFlink's signature.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from varvite.changelog.working_stores.custom import check_factory
from varvite.materializer.options.driver import MAX_PARALLELISM, PARALLELISM
from varvite.materializer.options.table import OPTIONS
from varvite.materializer.restore.spark_files import query_id_of
from varvite.spark_integration.api.formats import known_format, sink_of_format
from varvite.spark_integration.api.query import (
    BatchFunction,
    LaunchedQuery,
    VarviteStreamingQuery,
    stop_timeout_s,
)
from varvite.spark_integration.api.session import check_worker_python, is_one_machine
from varvite.spark_integration.connectors.driver_sinks.spark_sinks import ForeachSink
from varvite.spark_integration.connectors.files.catalog_table import CatalogTable, catalog_table
from varvite.spark_integration.connectors.hadoop_files import HadoopDirectory
from varvite.spark_integration.connectors.heartbeats.heartbeat import with_heartbeat
from varvite.spark_integration.connectors.heartbeats.source_marker import settle_heartbeat
from varvite.spark_integration.connectors.private_location import PrivateLocation
from varvite.spark_integration.connectors.running_query import start_query
from varvite.spark_integration.connectors.several_sinks import OutputSinks
from varvite.spark_integration.connectors.sink import ForeachBatchSink, Sink, bind
from varvite.spark_integration.connectors.sources.collection import CollectionInput
from varvite.spark_integration.connectors.sources.input_rows import input_rows
from varvite.spark_integration.driver.monitoring.statistics import StatisticsLog
from varvite.spark_integration.options.executor_share import expected_executors, memory_warning
from varvite.spark_integration.options.job_config import levels_of_batch_job, resolve
from varvite.spark_integration.options.levels import option_key, session_level, session_properties
from varvite.spark_integration.options.progress_mode import decide_progress
from varvite.spark_integration.plan.graph import plan_graph, side_output_of
from varvite.spark_integration.plan.job import (
    JobPlan,
    check_bounds,
    check_generic_types,
    check_key_groups,
    check_parallelism,
    check_query_name,
    check_streaming,
    missing_checkpoint_location,
    take_option,
)
from varvite.spark_integration.plan.stateless import has_spark_state, stream_sources
from varvite.spark_integration.plan.transformations import (
    CollectionSource,
    DataFrameSource,
    KeyedTransformation,
    Transformation,
    sources_of,
)
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.table import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.options.job_config import JobConfig
    from varvite.spark_integration.options.levels import OptionLevel
    from varvite.spark_integration.plan.transformations import GraphSettings


_log: Final = logging.getLogger(__name__)
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
SPARK_LOCATION: Final = "spark.sql.streaming.checkpointLocation"
_TRIGGERS: Final = ("processingTime", "once", "availableNow")


class ProgramSettings(Protocol):
    """The part of the environment that a query is started with."""

    graph_settings: GraphSettings

    @property
    def spark(self) -> SparkSession:
        """The session."""
        ...

    def code_level(self) -> OptionLevel:
        """The options that code has set."""
        ...


class EndOfStream(Protocol):
    """A stream, by its last node."""

    @property
    def transformation(self) -> Transformation:
        """The last node."""
        ...


class StreamWriter:
    """Sets where and when a stream is written. Every method but `start` returns the writer itself, as Spark's."""

    def __init__(
        self,
        environment: ProgramSettings,
        transformation: Transformation,
        *,
        batch_directory: str | None = None,
        is_mode_decided: bool = False,
    ) -> None:
        """Write a stream.

        Args:
            environment: Its settings.
            transformation: The end of the stream.
            batch_directory: Path for the storage of a program in BATCH mode; None: it is in STREAMING mode.
            is_mode_decided: The program as a whole has decided the mode; else the query itself has to be in STREAMING.
        """
        self._environment = environment
        self._is_mode_decided = is_mode_decided
        self._batch_directory = batch_directory
        self._transformation = transformation
        side = side_output_of(transformation)
        self._main = transformation if side is None else side.inputs[0]
        self._sides: list[Transformation] = [] if side is None else [transformation]
        self._side_sinks: list[Sink] = []
        self._at_end: list[Callable[[bool], None]] = []
        self._job_options: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        self._trigger: dict[str, Any] = {}
        self._query_name: str | None = None
        self._sink: Sink | None = None
        self._format: str | None = None
        self._partition_by: list[str] = []
        self._table: CatalogTable | None = None

    def foreach_batch(self, func: Callable[[DataFrame, int], None] | Sink) -> StreamWriter:
        """Write with a function of (rows, batch id), or with a `Sink`.

        The function runs once per batch in the ordinary case, and again for the same batch id after a crash: it should
        replace what it wrote before. The operators are not executed again, whatever it does with the rows.
        """
        if not isinstance(func, Sink) and not callable(func):
            raise InvalidRequestError(f"foreach_batch takes a function of (rows, batch id), not {func!r}")
        self._sink, self._format = func if isinstance(func, Sink) else ForeachBatchSink(func), None
        return self

    def side_output(
        self, end: EndOfStream | Transformation, func: Callable[[DataFrame, int], None] | Sink
    ) -> StreamWriter:
        """Also write a side output of the same operator, with a function of (rows, batch id) or with a `Sink`.

        Side outputs are written after the stream itself, in the order of these calls.

        Raises:
            InvalidRequestError: The stream is not a side output.
        """
        node = end if isinstance(end, Transformation) else end.transformation
        if side_output_of(node) is None:
            raise InvalidRequestError(f"{node.kind} does not come from get_side_output; a job writes one main output")
        return self.another_output(node, func if isinstance(func, Sink) else ForeachBatchSink(func))

    def another_output(self, end: Transformation, sink: Sink) -> StreamWriter:
        """Also write another output of the same operator: a side output, or its main output behind other steps."""
        self._sides.append(end)
        self._side_sinks.append(sink)
        return self

    def format(self, source: str) -> StreamWriter:
        """Write files (csv, json, orc, parquet), to Delta or to Kafka, to the console, or to a view in memory.

        Raises:
            InvalidRequestError: Another format.
        """
        self._sink, self._format = None, known_format(source)
        return self

    def foreach(self, f: Any) -> StreamWriter:
        """Call a function with each row, or an object with `process(row)`, in Spark's tasks: at least once, as Spark.

        Such an object may have `open(partition_id, epoch_id)` and `close(error)`.
        """
        self._sink, self._format = ForeachSink(f), None
        return self

    def to_table(
        self,
        table_name: str,
        format: str | None = None,  # noqa: A002  Spark's name
        outputMode: str | None = None,  # noqa: N803  Spark's spelling
        partitionBy: str | Sequence[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> VarviteStreamingQuery:
        """Start the query and write to a table of files of Spark's catalogue, exactly once; made if there is none.

        The table has the column `batch_id` beside those of the output. Raises `InvalidRequestError` if it has others,
        or is no table of files; and as `start`.
        """
        said: Any = ((self.output_mode, outputMode), (self.query_name, queryName), (self.partition_by, partitionBy))
        for method, value in said:
            if value is not None:
                method(value)
        self.options(**options)
        spark, schema = self._environment.spark, self._transformation.elements.schema
        self._table = table = catalog_table(spark, table_name, format or self._format, schema, self._partition_by)
        self._partition_by = list(table.partition_by)
        return self.format(table.file_format).start(table.location)

    def partition_by(self, *columns: str | Sequence[str]) -> StreamWriter:
        """Partition files, or a Delta table that is made, by these columns, as Spark's `partitionBy`."""
        self._partition_by = [name for each in columns for name in ([each] if isinstance(each, str) else each)]
        return self

    def option(self, key: str, value: Any) -> StreamWriter:
        """Set an option of varvite (without `spark.varvite.`), `checkpointLocation`, `path`, or one of the format.

        Raises:
            InvalidRequestError: An option of varvite that does not exist, or a value that does not fit.
        """
        job_key = option_key(key)
        if job_key is None:
            self._options[key] = value
        else:
            OPTIONS.read("query option", {job_key: value})
            self._job_options[job_key] = value
        return self

    def options(self, **options: Any) -> StreamWriter:
        """Set several options at once."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Set the trigger, as Spark's: `processingTime="5 seconds"`, `availableNow=True` or `once=True`.

        By default a query runs until it is stopped, or, over a collection, until that is processed.

        Raises:
            InvalidRequestError: Another trigger (continuous and real-time have no micro-batches), or not exactly one.
        """
        triggers = {name: value for name, value in trigger.items() if value is not None}
        if len(triggers) != 1 or not set(triggers) <= set(_TRIGGERS):
            raise InvalidRequestError(f"trigger takes exactly one of {', '.join(_TRIGGERS)}, not {sorted(triggers)}")
        self._trigger = triggers
        return self

    def query_name(self, name: str) -> StreamWriter:
        """Name the query and the job. Required. Raises `InvalidRequestError` if it cannot be a directory name."""
        self._query_name = check_query_name(name)
        return self

    def output_mode(self, mode: str) -> StreamWriter:
        """Take Spark's output mode "append"; "update" where an operator of Spark's was given "Update".

        They are the same: rows that a function yields are appended. Raises `InvalidRequestError` for others.
        """
        is_update = any(isinstance(n, KeyedTransformation) and n.is_update for n in self._main.lineage())
        if mode.lower() != "append" and not (mode.lower() == "update" and is_update):
            raise InvalidRequestError(f"output mode {mode!r} is not possible; rows that a function yields are appended")
        return self

    outputMode, queryName, foreachBatch = output_mode, query_name, foreach_batch  # noqa: N815  Spark's spelling
    partitionBy, toTable = partition_by, to_table  # noqa: N815

    def start(self, path: str | None = None) -> VarviteStreamingQuery:
        """Start the query.

        Args:
            path: Directory of the output files, or of the Delta table.

        Returns:
            Spark's `StreamingQuery`.

        Raises:
            InvalidRequestError: Something is missing or contradictory; nothing is started.
            VarviteError: The storage cannot be used, or the state belongs to another job.
        """
        spark = self._environment.spark
        check_worker_python(spark)
        options = dict(self._options)
        plan, private = self._plan(spark, options)
        limit = memory_warning(spark.conf.get)
        if limit is not None and plan.operators:
            _log.warning("job %s: %s", plan.job, limit)
        sink = self._with_sides(self._make_sink(spark, plan, options, path), spark, plan)
        at_end = list(self._at_end)
        if private is not None:  # before that it goes with its last reference
            at_end.append(lambda _: private.cleanup())
        collections = self._collections(spark, plan.checkpoint_location)
        if collections:
            opened = {number: collection.open(SystemTokens()) for number, collection in collections.items()}
            plan = replace(plan, input=self._input(spark, plan, opened))
            at_end[:0] = [collection.end for collection in collections.values()]
        trigger = self._spark_trigger(plan.config)
        limit_s = stop_timeout_s(spark)
        launched = _launch(spark, plan, sink, trigger, StatisticsLog())
        closing: Callable[[], LaunchedQuery] | None = None
        ends = bool(set(trigger) & {"availableNow", "once"})
        if ends and not plan.heartbeat and not plan.input_ends and any(o.has_timers for o in plan.operators):
            _log.warning(
                "job %s: without heartbeats, timers and windows that the last rows make due fire in the next run",
                plan.job,
            )
        if plan.heartbeat and ends:
            following = replace(plan, config=replace(plan.config, restore=None))
            log = launched.run.statistics
            closing = partial(_launch, spark, following, sink, {"availableNow": True}, log)
        return VarviteStreamingQuery(launched, at_end, stop_timeout_s=limit_s, closing=closing)

    def _spark_trigger(self, config: JobConfig) -> dict[str, Any]:
        """Spark's trigger: the user's, that of collections alone, or the interval's."""
        if self._trigger:
            return self._trigger
        sources = sources_of(self._transformation)
        if all(source.is_bounded for source in sources):
            return {"availableNow": True}
        intervals = (source.interval_ms for source in sources if isinstance(source, DataFrameSource))
        default_ms = min((interval for interval in intervals if interval is not None), default=None)
        return trigger_every(config.checkpoint_interval_ms or default_ms)

    @property
    def parallelism(self) -> int:
        """Partitions of the operators that have no number of their own."""
        return default_parallelism(self._environment.spark, self._levels())

    def at_end(self, call: Callable[[bool], None]) -> StreamWriter:
        """Call a function when the query has ended; True: it ended by itself, its input used up."""
        self._at_end.append(call)
        return self

    def _plan(self, spark: SparkSession, options: dict[str, Any]) -> tuple[JobPlan, PrivateLocation | None]:
        """Check the query as a whole; removes the checkpoint location from the options, or makes one."""
        job = check_query_name(self._query_name)
        config = resolve(self._levels())
        if not self._is_mode_decided:
            check_streaming(config, sources_of(self._transformation))
        _check_not_running(spark, job)
        if config.has_custom_backend:
            check_factory(config.backend_type, dict(config.custom_backend_options or {}))
        parallelism = default_parallelism(spark, self._levels())
        graph = plan_graph(self._main, self._environment.graph_settings.with_parallelism(parallelism), self._sides)
        check_generic_types(job, graph.operators, graph.sources, allowed=config.generic_types)
        check_key_groups(graph.operators, config.max_parallelism)
        rows = input_rows(spark, graph.sources, {}, branched=bool(graph.input_delays))
        java_rows: Any = rows._jdf  # noqa: SLF001  as in `dataframe_source`
        analyzed = java_rows.queryExecution().analyzed()
        keeps_state = has_spark_state(analyzed)
        names = _source_names(graph.sources, analyzed)
        progress = decide_progress(config.progress, names, self._spark_trigger(config), has_spark_state=keeps_state)
        location = take_option(options, "checkpointLocation") or location_of_session(
            spark.conf.get(SPARK_LOCATION, None), job
        )
        if not location and not progress.is_in_chain:
            raise missing_checkpoint_location(options, progress.reason)
        private = None if location else PrivateLocation(config.storage_url, job)
        location = private.url if private is not None else location
        files = HadoopDirectory(spark, str(location))
        in_chain = _in_chain(files, config, job, is_private=private is not None)
        metadata = in_chain.get("metadata")
        input_ends = all(source.is_bounded for source in graph.sources)
        check_bounds(graph.sources, self._trigger)
        heartbeat = not input_ends and settle_heartbeat(
            files,
            in_chain,
            option=config.heartbeat_enabled,
            has_timers=any(operator.has_timers for operator in graph.operators),
        )
        plan = JobPlan(
            job=job,
            input=with_heartbeat(rows) if heartbeat else rows,
            heartbeat=heartbeat,
            input_ends=input_ends,
            is_batch=self._batch_directory is not None,
            preparation=graph.preparation,
            operators=graph.operators,
            checkpoint_location=str(location),
            is_private_location=private is not None,
            begun_query_id=query_id_of(metadata, "metadata") if metadata else None,
            progress=progress,
            parallelism=parallelism,
            watermark_delay_ms=graph.watermark_delay_ms,
            is_spark_watermark=graph.is_spark_watermark,
            has_spark_state=keeps_state,
            input_delays=graph.input_delays,
            config=config,
            executors=expected_executors(spark.conf.get),
        )
        return plan, private

    def _collections(self, spark: SparkSession, checkpoint_location: str) -> dict[int, CollectionInput]:
        """The sources that are collections, by their number."""
        return {
            number: CollectionInput(spark, source, checkpoint_location, number)
            for number, source in enumerate(sources_of(self._transformation))
            if isinstance(source, CollectionSource)
        }

    def _input(self, spark: SparkSession, plan: JobPlan, opened: Mapping[int, DataFrame]) -> DataFrame:
        """The job's input, with the collections as streams."""
        rows = input_rows(spark, sources_of(self._transformation), opened, branched=bool(plan.input_delays))
        return with_heartbeat(rows) if plan.heartbeat else rows

    def _levels(self) -> list[OptionLevel]:
        """Levels of options, strongest first."""
        of_query = OPTIONS.read("query option", self._job_options)
        levels = [self._environment.code_level(), of_query, session_level(session_properties(self._environment.spark))]
        return levels if self._batch_directory is None else levels_of_batch_job(levels, self._batch_directory)

    def _with_sides(self, sink: Sink, spark: SparkSession, plan: JobPlan) -> Sink:
        for each in (sink, *self._side_sinks):
            bind(each, spark, plan)
        sink.check_columns(self._transformation.elements.schema)
        if not self._sides:
            return sink
        first = len(self._sides) - len(self._side_sinks)  # 1: the writer's own stream is a side output
        for end, of_side in zip(self._sides[first:], self._side_sinks, strict=True):
            of_side.check_columns(end.elements.schema)
        sides = enumerate(self._side_sinks, first)
        return OutputSinks(((0 if first else None, sink), *sides))

    def _make_sink(self, spark: SparkSession, plan: JobPlan, options: dict[str, Any], path: str | None) -> Sink:
        path = path or take_option(options, "path")
        if self._format is not None:
            path, table = path and str(path), self._table
            return sink_of_format(self._format, spark, plan, options, path, self._partition_by, table=table)
        if self._sink is None:
            raise InvalidRequestError("nothing says where the rows go: call foreach_batch(...) or format(...)")
        unused = [*sorted(options), *(["path"] if path else []), *(["partition_by"] if self._partition_by else [])]
        if unused:
            raise InvalidRequestError(f"{unused} have no meaning with foreach_batch; remove them")
        return self._sink


def default_parallelism(spark: SparkSession, levels: Sequence[OptionLevel]) -> int:
    """Partitions of the operators that have no number of their own, at most as many as key groups.

    Without a setting it is Spark's `spark.sql.shuffle.partitions`; on one machine the number of its cores if nobody has
    set that either, as each partition has a process.
    """
    is_set = spark.conf.get(SHUFFLE_PARTITIONS, None) is not None
    cores, of_shuffles = spark.sparkContext.defaultParallelism, int(spark.conf.get(SHUFFLE_PARTITIONS) or "200")
    default = cores if is_one_machine(spark) and not is_set else of_shuffles
    return check_parallelism(value_of(PARALLELISM, levels), default, value_of(MAX_PARALLELISM, levels))


def _launch(
    spark: SparkSession, plan: JobPlan, sink: Sink, trigger: dict[str, Any], statistics: StatisticsLog
) -> LaunchedQuery:
    """Open the job, fence other runs off, and start Spark's query."""
    from varvite.spark_integration.driver.coordinator import Coordinator  # late: it loads everything else

    run = Coordinator.create(spark, plan, sink, statistics)
    try:
        batches = BatchFunction(run.process_batch)
        writer = plan.input.writeStream.foreachBatch(batches).queryName(plan.job)
        writer = writer.option("checkpointLocation", plan.checkpoint_location)
        writer = writer.trigger(**trigger) if trigger else writer  # may raise: not after another run was fenced off
        run.take_over()
        query = start_query(writer, plan.progress)
    except BaseException:
        run.stop()
        raise
    return LaunchedQuery(query, run, batches)


def _source_names(sources: Sequence[DataFrameSource | CollectionSource], analyzed: Any) -> list[str]:
    """Names of Spark's sources in a logical plan, and of collections, which are opened later."""
    return [*stream_sources(analyzed), *("from_collection" for each in sources if isinstance(each, CollectionSource))]


def _in_chain(files: HadoopDirectory, config: JobConfig, job: str, *, is_private: bool) -> Mapping[str, bytes]:
    """The files that the start will make in an empty location."""
    from varvite.spark_integration.driver.job_start import location_in_chain  # late: it loads everything else

    if next(iter(files.list_names("offsets")), None) is not None:
        return {}
    return location_in_chain(config, job, is_private=is_private)


def location_of_session(root: str | None, job: str) -> str | None:
    """The checkpoint location of a query of that name, by the session's `SPARK_LOCATION`, as in Spark; None: none."""
    return f"{root.rstrip('/')}/{job}" if root else None


def trigger_every(interval_ms: int | None) -> dict[str, Any]:
    """Spark's trigger for an interval; empty without one."""
    return {} if interval_ms is None else {"processingTime": f"{interval_ms} milliseconds"}


def _check_not_running(spark: SparkSession, job: str) -> None:
    # Spark would refuse a second query of this name too late: after this run has fenced the first one off.
    if any(query.name == job for query in spark.streams.active):
        raise InvalidRequestError(f"a query named {job!r} is running in this session; stop it first", job=job)
