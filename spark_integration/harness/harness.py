"""`OperatorHarness`: runs one stateful operator without Spark, batch by batch, for tests of users' functions.

What runs is varvite: runner, keyed state, changelog, checkpoints, timers, windows and restores are those of a job.
A test plays the parts of Spark and of time. See docs/guide/testing.md.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from varvite.changelog.api.functions import ReduceFunction
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.keyed.view import StateView, ViewedTimer
from varvite.spark_integration.functions.connected import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from varvite.spark_integration.functions.stateless import FilterFunction, FlatMapFunction, MapFunction
from varvite.spark_integration.functions.timers import MIN_WATERMARK
from varvite.spark_integration.harness.elements import HarnessInput, HarnessOutput
from varvite.spark_integration.harness.job import HarnessClock, HarnessJob
from varvite.spark_integration.harness.plan import HarnessProgram, HarnessSettings, harness_plan, harness_program
from varvite.spark_integration.messages.user_errors import UserErrorRaised, user_error, user_function_error
from varvite.spark_integration.plan.function_chain import StepError
from varvite.storage.errors import InvalidRequestError
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.options.state_backends import StateBackend

_METHODS = (
    (MapFunction, "map"), (FlatMapFunction, "flat_map"), (FilterFunction, "filter"), (ReduceFunction, "reduce")
)  # fmt: skip


class HarnessOptions(TypedDict, total=False):
    """Options of a harness; each field is explained in `HarnessSettings`."""

    parallelism: int
    max_parallelism: int
    backend: StateBackend
    changelog: bool
    options: Mapping[str, Any]
    materialize_every: int | None
    processing_time: int
    side_outputs: tuple[OutputTag, ...]


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """A checkpoint of a harness: all that a job keeps in its storage. It can be pickled if the program can."""

    program: HarnessProgram = field(repr=False)
    settings: HarnessSettings
    objects: Mapping[str, bytes] = field(repr=False)
    next_batch: int
    processing_time: int


class OperatorHarness:
    """One stateful operator, with time and batches in the hands of a test.

    Elements are processed as they are pushed, within a micro-batch that `checkpoint` ends and confirms; `process_batch`
    does all of that. As in a job, time stands still within a batch, so moving it ends the batch that is open.

    Use it in a `with` statement, or `close` it.
    """

    def __init__(self, build: Callable[..., DataStream], *input_types: Any, **options: Unpack[HarnessOptions]) -> None:
        """Run a program.

        Args:
            build: From a stream for each input to the stream that comes out, as a job says it: `lambda stream:
                stream.key_by("k").process(MyFunction(), "k string, n bigint", uid="count")`. With one stateful
                operator, and any functions without state before and after it.
            input_types: What the elements of each input are, as any `output_type`: columns, a `TypeInformation`, or
                None for any objects. None given: one input of any objects.
            options: See `HarnessOptions`.

        Raises:
            InvalidRequestError: The program or an option cannot be right.
        """
        program = harness_program(build, input_types)
        self._open(OperatorSnapshot(program, HarnessSettings(**options), {}, 0, options.get("processing_time", 0)))

    @classmethod
    def of_function(
        cls, function: Any, key_by: Any, input_type: Any = None, output_type: Any = None,
        **options: Unpack[HarnessOptions],
    ) -> Self:  # fmt: skip
        """Run a function on a keyed stream.

        Args:
            function: A keyed process function, a vectorised one, a map, flat map, filter or reduce function, or a
                `StatefulProcessor` of Spark's without event time.
            key_by: A column's name, a list of columns' names, or a key function.
            input_type: What the elements are; see `OperatorHarness`.
            output_type: What comes out; reduce and filter give what goes in.
            options: See `HarnessOptions`.

        Raises:
            InvalidRequestError: The function is none of these, or an argument cannot be right.
        """
        columns = list(key_by) if isinstance(key_by, list | tuple) else [key_by]

        def build(stream: DataStream) -> DataStream:
            keyed = stream.key_by(*columns)
            for kind, method in _METHODS:
                if isinstance(function, kind):
                    typed = () if method in ("filter", "reduce") else (output_type,)
                    return getattr(keyed, method)(function, *typed)
            if isinstance(function, StatefulProcessor):
                return keyed.transform_with_state(function, output_type, time_mode="ProcessingTime", uid="operator")
            return keyed.process(function, output_type, uid="operator")

        return cls(build, input_type, **options)

    @classmethod
    def of_co_function(
        cls, function: Any, key_by: tuple[Any, Any], input_types: tuple[Any, Any] = (None, None),
        output_type: Any = None, **options: Unpack[HarnessOptions],
    ) -> Self:  # fmt: skip
        """Run a function on two connected streams: a co-process, co-map or co-flat-map function.

        Args:
            function: The function.
            key_by: Of each stream; see `of_function`.
            input_types: Of each stream.
            output_type: What comes out.
            options: See `HarnessOptions`.

        Raises:
            InvalidRequestError: The function is none of these, or an argument cannot be right.
        """

        def build(first: DataStream, second: DataStream) -> DataStream:
            connected = first.connect(second).key_by(*key_by)
            if isinstance(function, CoMapFunction):
                return connected.map(function, output_type)
            if isinstance(function, CoFlatMapFunction):
                return connected.flat_map(function, output_type)
            checked: KeyedCoProcessFunction[Any, Any, Any, Any] = function
            return connected.process(checked, output_type, uid="operator")

        return cls(build, *input_types, **options)

    @classmethod
    def restore(
        cls, snapshot: OperatorSnapshot, build: Callable[..., DataStream] | None = None,
        **options: Unpack[HarnessOptions],
    ) -> Self:  # fmt: skip
        """Go on from a snapshot, in a new harness; the snapshot can be used again.

        Args:
            snapshot: What `snapshot` gave.
            build: New code, which must keep the uid of the operator; None: the same as before.
            options: Other settings than before: another parallelism, another backend, the changelog on or off.

        Raises:
            InvalidRequestError: An option cannot be right.
            IncompatibleError: The state does not fit the new code, or the number of key groups differs.
        """
        program = snapshot.program if build is None else replace(snapshot.program, build=build)
        time = max(snapshot.processing_time, options.get("processing_time", snapshot.processing_time))
        settings = replace(snapshot.settings, **options)
        harness = cls.__new__(cls)
        start = replace(snapshot, program=program, settings=settings, processing_time=time)
        harness._open(start)  # noqa: SLF001  of the same class
        return harness

    def _open(self, start: OperatorSnapshot) -> None:
        self._program, self._settings = start.program, start.settings
        plan = harness_plan(start.program, start.settings)
        self._directory = TemporaryDirectory("harness")
        self.output: list[Any] = []
        """The output so far, in order; a list of your own: clear it as you like."""
        self._sides: defaultdict[str, list[Any]] = defaultdict(list)
        self._unconfirmed: defaultdict[str | None, int] = defaultdict(int)
        """Number of elements at the end of each output (None: the main one) that are not confirmed."""
        self._checkpoints = 0
        self._clock = HarnessClock(start.processing_time)
        try:
            self._job = HarnessJob(plan, self._directory.path, self._clock, start.objects, start.next_batch)
            self._input = HarnessInput(plan, self._job.request)
            self._reader = HarnessOutput(plan)
        except BaseException:
            self._directory.cleanup()
            raise

    def close(self) -> None:
        """Close the functions and remove all files; a batch that is not confirmed is lost."""
        try:
            self._job.close()
            self._guard(self._input.close)
        finally:
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- elements and batches ----------------------------------------------------------------------------------------

    def process_element(self, value: Any, timestamp: int | None = None, *, input: int = 0) -> None:  # noqa: A002
        """Process one element in the batch that is open; a new one begins if none is.

        Args:
            value: The element: of columns a tuple, Row or dict.
            timestamp: Its event time, milliseconds since 1970; None: it has none.
            input: Number of the input, from 0.

        Raises (as does everything else that executes):
            UserFunctionError: The function raised; `__cause__` is what it raised. The batch is dropped, as `fail_batch`
                does.
            InvalidRequestError: The element does not fit, or the function's output does not.
        """
        self._process(input, [value], None if timestamp is None else [timestamp])

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Process an element of the first of two inputs."""
        self.process_element(value, timestamp, input=0)

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Process an element of the second of two inputs."""
        self.process_element(value, timestamp, input=1)

    def process_batch(
        self,
        elements: Iterable[Any] | pa.RecordBatch | pa.Table = (),
        timestamps: Sequence[int | None] | None = None,
        *,
        input: int = 0,  # noqa: A002
        processing_time: int | None = None,
        watermark: int | None = None,
    ) -> list[Any]:
        """Process elements, end the batch and confirm it; gives what came out of the whole batch.

        Without a time they join the batch that is open.

        Args:
            elements: The elements, or rows as an Arrow batch or table; none for a batch in which only timers fire.
            timestamps: The event time of each; None: they have none.
            input: Number of the input, from 0.
            processing_time: Begin a new batch, at this time: what is due fires after the elements (of windows before
                them, too). Milliseconds since 1970; None: it stays as it is.
            watermark: Likewise, at this watermark.

        Raises:
            InvalidRequestError: Time would go back, or as `process_element`.
        """
        self._move(processing_time, watermark)
        rows: Any = elements if isinstance(elements, (pa.RecordBatch, pa.Table)) else list(elements)
        self._begin()
        if len(rows):
            self._process(input, rows, timestamps)
        self._end()
        count = min(self._unconfirmed[None], len(self.output))
        output = self.output[len(self.output) - count :]
        self._confirm()
        return output

    def checkpoint(self) -> None:
        """End the batch, in which what is due fires, and confirm it. Without an open batch: an empty one."""
        if not self._job.is_pending:
            self._begin()
            self._end()
        self._confirm()

    def fail_batch(self) -> None:
        """Drop what was not confirmed, as when a batch's tasks fail: state and output are those of the last checkpoint.

        The function is made anew. Time stays where it is.
        """
        self._job.drop()
        self._take_back()

    def crash(self) -> None:
        """Lose all processes and local files, and start again from the last checkpoint, its watermark included."""
        self._take_back()
        self._job.crash()

    def _process(self, number: int, elements: Any, timestamps: Sequence[int | None] | None) -> None:
        self._begin()
        batches = self._guard(lambda: list(self._input.batches(number, elements, timestamps)))
        with _Dropping(self):
            for partition, batch in batches:
                self._take(self._job.process(partition, batch))

    def _begin(self) -> None:
        """Open a batch, unless one is; one that has ended is confirmed."""
        if self._job.is_pending:
            self._confirm()
        if not self._job.is_open:
            self._guard(self._input.begin)
            with _Dropping(self):
                self._job.begin()

    def _end(self) -> None:
        with _Dropping(self):
            self._take(self._job.end())

    def _confirm(self) -> None:
        self._job.commit(self._input.latest_ms)
        self._unconfirmed.clear()
        self._checkpoints += 1
        every = self._settings.materialize_every
        if every is not None and self._checkpoints % every == 0:
            self._job.materialize()

    def _take(self, answers: Iterator[pa.RecordBatch]) -> None:
        for answer in answers:
            main, sides = self._reader.read(answer)
            self.output.extend(main)
            self._unconfirmed[None] += len(main)
            for tag, elements in sides.items():
                self._sides[tag].extend(elements)
                self._unconfirmed[tag] += len(elements)

    def _take_back(self) -> None:
        for tag, count in self._unconfirmed.items():
            output = self.output if tag is None else self._sides[tag]
            del output[max(0, len(output) - count) :]
        self._unconfirmed.clear()

    def _guard(self, run: Callable[[], Any]) -> Any:
        """Functions before the operator raise as the operator does, which drops the batch."""
        try:
            return run()
        except StepError as failed:
            self.fail_batch()
            error = user_error(failed.cause, None, failed.where)
            raised = user_function_error(UserErrorRaised(error, None, 0), self._job.request.job, self._job.next_batch)
            raise raised from failed.cause

    @property
    def late_rows(self) -> int:
        """Rows that were dropped in confirmed batches, because they came behind the watermark."""
        return self._job.late_rows

    # --- time --------------------------------------------------------------------------------------------------------

    def set_processing_time(self, time_ms: int) -> None:
        """Let it be this time, and run a batch without elements, in which what is due fires.

        The batch before is confirmed; this one is when the next begins, or by `checkpoint`.

        Args:
            time_ms: Milliseconds since 1970; not before the time that it is.

        Raises:
            InvalidRequestError: Time would go back.
        """
        self._move(time_ms, None)
        self._begin()
        self._end()

    def process_watermark(self, watermark_ms: int) -> None:
        """Let the watermark be there, and run a batch without elements, as `set_processing_time`.

        Args:
            watermark_ms: Milliseconds since 1970; not before the watermark that there is.

        Raises:
            InvalidRequestError: The watermark would go back.
        """
        self._move(None, watermark_ms)
        self._begin()
        self._end()

    @property
    def processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.time_ms

    @property
    def current_watermark(self) -> int:
        """The watermark of the next batch, milliseconds since 1970; -2**63 before there is one."""
        return MIN_WATERMARK if self._job.watermark_ms is None else self._job.watermark_ms

    def _move(self, time_ms: int | None, watermark_ms: int | None) -> None:
        """Let it be this time, after the batch that is open."""
        if time_ms is None and watermark_ms is None:
            return
        if time_ms is not None and time_ms < self._clock.time_ms:
            raise InvalidRequestError(f"processing time never goes back: it is {self._clock.time_ms}, not {time_ms}")
        if self._job.is_open or self._job.is_pending:
            self.checkpoint()
        before = self._job.watermark_ms  # only now: the batch may have moved it
        if watermark_ms is not None and before is not None and watermark_ms < before:
            raise InvalidRequestError(f"the watermark never goes back: it is {before}, not {watermark_ms}")
        self._clock.time_ms = self._clock.time_ms if time_ms is None else time_ms
        self._job.watermark_ms = before if watermark_ms is None else watermark_ms

    # --- what there is -----------------------------------------------------------------------------------------------

    def extract_output_values(self) -> list[Any]:
        """The output so far, as a new list. The output of a batch that is not confirmed is in it already."""
        return list(self.output)

    def get_side_output(self, output_tag: OutputTag) -> list[Any]:
        """The elements of a side output so far.

        Raises:
            InvalidRequestError: Nobody reads it: name it in `side_outputs`.
        """
        if output_tag not in self._settings.side_outputs:
            raise InvalidRequestError(f"{output_tag!r} is not read: give the harness side_outputs=({output_tag!r},)")
        return list(self._sides[output_tag.tag_id])

    def state(self, name: str, key: Any) -> Any:
        """The content of a state for a key, changes of the open batch included; None if there is none.

        A value, a list, or a dict; of a reducing or aggregating state the accumulator. What has expired is not there.

        Args:
            name: Of the state. Windows keep dicts, by where the windows begin, in a state called `window-contents`.
            key: The user's form; of several columns a tuple.

        Raises:
            InvalidRequestError: There is no such state, or the key is not of the key's type.
        """
        views = self._views()
        if name not in views[0].names:
            raise InvalidRequestError(f"there is no state {name!r}; there are {sorted(views[0].names)}")
        partition, key_group, stored = self._input.place_of(key)
        return views[partition].value(name, key_group, stored)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of all states that there are so far."""
        return self._views()[0].names

    def keys(self, name: str) -> list[Any]:
        """The keys of which a state holds something, in no defined order."""
        return [key for view in self._views() for key in view.keys(name)]

    def num_keyed_state_entries(self, name: str | None = None) -> int:
        """Number of keys for which a state, or all states together, hold something; as Flink's."""
        views = self._views()
        names = {name} if name is not None else {state for view in views for state in view.names}
        return sum(1 for view in views for state in names for _ in view.keys(state))

    def timers(self) -> list[ViewedTimer]:
        """Every timer that is set, by time."""
        return sorted((timer for view in self._views() for timer in view.timers()), key=lambda timer: timer.time_ms)

    def num_event_time_timers(self) -> int:
        """Number of event-time timers that are set, windows' own included."""
        return sum(timer.domain is TimeDomain.EVENT_TIME for timer in self.timers())

    def num_processing_time_timers(self) -> int:
        """Number of processing-time timers that are set, windows' own included."""
        return sum(timer.domain is TimeDomain.PROCESSING_TIME for timer in self.timers())

    def _views(self) -> list[StateView]:
        if not self._job.backends:
            self._begin()
        return [StateView(backend, self._job.now) for backend in self._job.backends]

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def materialize(self) -> None:
        """Fold the changelog as the materializer does beside a job; the next checkpoint adopts what it made."""
        self._job.materialize()

    def snapshot(self) -> OperatorSnapshot:
        """Make a checkpoint, and return what `restore` goes on from."""
        self.checkpoint()
        return OperatorSnapshot(
            self._program, self._settings, self._job.objects(), self._job.next_batch, self._clock.time_ms
        )


class _Dropping:
    """Drops the batch if anything raises."""

    def __init__(self, harness: OperatorHarness) -> None:
        self._harness = harness

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._harness.fail_batch()
