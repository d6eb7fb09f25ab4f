"""Output of a materializer's events and of progress: lines for logs, colour for terminals, JSON lines for programs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from varvite.materializer.monitoring.events import (
    Adopted,
    Collected,
    Event,
    Failed,
    JobFailed,
    LogSize,
    Materialized,
    Overdue,
    encode_event,
)
from varvite.storage.units import format_duration_ms, format_size_bytes
from varvite.storage.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from varvite.materializer.monitoring.events import Reporter

_logger: Final = logging.getLogger(__name__)
_STYLES: Final[Mapping[type[Event], str]] = {
    Materialized: "green",
    Adopted: "cyan",
    Failed: "red",
    Overdue: "red",
    JobFailed: "red",
    Collected: "dim",
}


def describe(event: Event) -> str:
    """The event as one line for people."""
    match event:
        case Materialized():
            return (
                f"{_range(event)}: snapshot {event.snapshot} of batch {event.at_batch} published ({event.trigger}), "
                f"folded {event.batches} batches, {event.mutations} mutations; "
                f"uploaded {event.uploaded_files} files {format_size_bytes(event.uploaded_bytes)}, "
                f"reused {event.reused_files} files {format_size_bytes(event.reused_bytes)}; "
                f"log {_log(event.log_before)} -> {_log(event.log_after)}; "
                f"{format_duration_ms(event.duration_ms)}"
            )
        case Adopted():
            return f"{_range(event)}: snapshot {event.snapshot} adopted by the job; log {_log(event.log)}"
        case Collected():
            return (
                f"{event.job}: {event.deleted} objects below seq {event.cut} or without owner deleted; "
                f"{format_duration_ms(event.duration_ms)}"
            )
        case Failed() | Overdue() | JobFailed():
            return _trouble(event)
        case _:
            return event.message


def _trouble(event: Failed | Overdue | JobFailed) -> str:
    match event:
        case Failed():
            state = "FAILING" if event.failing else "failed"
            return (
                f"{_range(event)}: {state}, {event.failures} in a row, next try in "
                f"{format_duration_ms(event.retry_ms)}: {event.error_type}: {event.error}"
            )
        case Overdue():
            return f"{_range(event)}: the log is overdue: {event.reason}"
        case JobFailed():
            return (
                f"{event.job + ': ' if event.job else ''}{event.step} failed, {event.failures} in a row, next try in "
                f"{format_duration_ms(event.retry_ms)}: {event.error_type}: {event.error}"
            )


def _range(event: Materialized | Adopted | Failed | Overdue) -> str:
    return f"{event.job} {event.operator}[{event.low},{event.high})"


def _log(size: LogSize) -> str:
    return f"{size.batches} batches {format_size_bytes(size.bytes)}"


class EventConsole(Console):
    """A console that does not end the process when its reader is gone."""

    def on_broken_pipe(self) -> None:
        """Raise the error of a failed write."""
        raise BrokenPipeError("nobody reads the output any more")


class ConsoleReporter:
    """Prints a line per event, in colour if the console is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def report(self, event: Event) -> None:
        style = _STYLES.get(type(event), "yellow")
        text = escape(visible(describe(event)))
        if self._console.is_terminal:
            self._console.print(f"[dim]{self._console.get_datetime():%H:%M:%S}[/] [{style}]{text}[/]", highlight=False)
        else:
            # soft_wrap: a log collector needs one line per event, whatever width rich assumes for the pipe.
            line = f"{self._console.get_datetime():%Y-%m-%d %H:%M:%S} varvite.materializer {text}"
            self._console.print(line, soft_wrap=True, highlight=False)


class CountingBar:
    """A progress bar that counts snapshots, below the lines of a `ConsoleReporter` on the same terminal."""

    def __init__(self, console: Console) -> None:
        self._count = 0
        self._bar = Progress(
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(self._text, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def report(self, event: Event) -> None:
        self._count += isinstance(event, Materialized)
        self._bar.update(self._task, description=self._text)

    @property
    def _text(self) -> str:
        return f"materializing, {self._count} done"


class JsonReporter:
    """Writes a JSON line per event and flushes it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def report(self, event: Event) -> None:
        self._stream.write(encode_event(event))
        self._stream.flush()


class ReporterGroup:
    """Passes every event on to several reporters.

    Nothing depends on the output, so a reporter that cannot write (its disk is full, its reader is gone) stops nothing.
    The first failed write is logged; events that are not written are lost.
    """

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)
        self._silent: set[int] = set()
        """Indexes of the reporters that could not write the last event."""

    def report(self, event: Event) -> None:
        for index, reporter in enumerate(self._reporters):
            try:
                reporter.report(event)
            except OSError as error:
                if index not in self._silent:
                    _logger.warning("events cannot be written and are lost until they can: %s", error)
                self._silent.add(index)
            else:
                self._silent.discard(index)


_Item = TypeVar("_Item")


def track_items(items: Sequence[_Item], title: str) -> Iterable[_Item]:
    """Yield the items one by one, with a progress bar."""
    with shown_steps(title) as show_progress:
        for index, item in enumerate(items):
            show_progress(index, len(items))
            yield item


@contextmanager
def shown_steps(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar; yields a function that takes the number of finished steps and of all steps."""
    console = Console(stderr=True)
    # Not redirected: standard output must not go to standard error, where the bar is.
    bar = Progress(
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(escape(title), total=None)

        def show_progress(completed: int, steps: int) -> None:
            bar.update(task, completed=completed, total=steps)

        yield show_progress
