"""`varvite pins`: lists the pins of readers in a job's storage, and releases those that a killed reader has left.

No clock decides that a reader is dead, so only a user releases its pin, by name or by age.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from varvite.changelog.retention.pins import list_all_pins
from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import DURATION, job_chain, storage_parameters
from varvite.materializer.service import retention
from varvite.storage.clock import SystemClock
from varvite.storage.errors import CorruptDataError, InvalidRequestError, VarviteError
from varvite.storage.format import layout
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.retention.pins import ListedPin
    from varvite.storage.format.records import Pin


class PinLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite pins`."""

    job: str
    pin: str
    holder: str | None = None
    seq: int | None = None
    """The pinned checkpoint."""
    created: str | None = None
    """Time of its creation, by the holder's clock."""
    entries: int | None = None
    """Entries of the chain that only this pin and older ones protect from deletion."""
    error: str | None = None
    """The error, if the pin cannot be read; then the other fields are empty, and nothing of the job is deleted."""


@click.group()
def pins() -> None:
    """Pins: marks that protect a checkpoint from deletion while a reader works."""


@pins.command(name="list")
@click.argument("job")
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def list_(job: str, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """List the pins of JOB, the oldest first; the exit code is 1 if one cannot be read."""
    try:
        reader = job_chain(job, storage_url, storage_options)
        listed = list_all_pins(reader)
        lines = [*_lines(job, reader, listed).values(), *_damaged(job, listed)]
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines(lines, as_json=as_json, rare=("error",))
    if any(line.error for line in lines):
        sys.exit(1)


@pins.command()
@click.argument("job")
@click.argument("names", nargs=-1, metavar="[PIN]...")
@storage_parameters(required=True)
@click.option("--older-than", "age_ms", type=DURATION, help="All pins that were made so long ago, or earlier.")
@click.option("--damaged", is_flag=True, help="Also those of the named ones that cannot be read.")
@click.option("--dry-run", is_flag=True, help="Only say what would be released.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def release(
    job: str,
    names: tuple[str, ...],
    storage_url: str,
    storage_options: dict[str, Any] | None,
    *,
    age_ms: int | None,
    damaged: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Release pins of JOB by name or by age. The next garbage collection deletes the objects that only they kept.

    --older-than skips the pins of the retention by time: the materializer releases those. A reader whose pin is
    released while it reads fails, but never reads wrong data.
    """
    try:
        if bool(names) == (age_ms is not None):
            raise InvalidRequestError("say which pins to release: name them, or give --older-than")
        if damaged and age_ms is not None:
            raise InvalidRequestError("--damaged goes with pin names: a pin that cannot be read has no known age")
        reader = job_chain(job, storage_url, storage_options)
        listed = list_all_pins(reader)
        lines = _lines(job, reader, listed)
        if age_ms is not None:
            chosen = [lines[pin] for pin in _old(lines, SystemClock().now_ms() - age_ms)]
        else:
            chosen = _by_name([*lines.values(), *_damaged(job, listed)], names, job, damaged=damaged)
        if not dry_run:
            reader.store.delete([layout.pin(line.pin) for line in chosen])
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines(chosen, as_json=as_json, rare=("error",))


def _lines(job: str, reader: ChainReader, listed: Sequence[ListedPin]) -> dict[Pin, PinLine]:
    """The lines of the pins that can be read, the oldest first."""
    head = reader.head()
    keep_from = head.keep_from if head is not None else 0
    readable = [stored.pin for stored in listed if not isinstance(stored.pin, CorruptDataError)]
    ordered = sorted(readable, key=lambda pin: (pin.needs_from, pin.created_ms, pin.token))
    ends = [*(pin.needs_from for pin in ordered[1:]), keep_from]
    return {pin: _line(job, pin, min(end, keep_from)) for pin, end in zip(ordered, ends, strict=False)}


def _damaged(job: str, listed: Sequence[ListedPin]) -> list[PinLine]:
    return [
        PinLine(job=job, pin=stored.name, error=stored.pin.message)
        for stored in listed
        if isinstance(stored.pin, CorruptDataError)
    ]


def _line(job: str, pin: Pin, until: int) -> PinLine:
    return PinLine(
        job=job,
        pin=pin.token,
        holder=pin.holder,
        seq=pin.commit.seq,
        created=utc_time(pin.created_ms),
        entries=max(0, until - pin.needs_from),
    )


def _by_name(lines: Sequence[PinLine], names: Collection[str], job: str, *, damaged: bool) -> list[PinLine]:
    """The pins of these names. Raises `InvalidRequestError` if there is no such pin, or one is damaged unexpectedly."""
    unknown = set(names) - {line.pin for line in lines}
    if unknown:
        raise InvalidRequestError(f"there is no pin {min(unknown)}; see `varvite pins list`", job=job)
    chosen = [line for line in lines if line.pin in names]
    unreadable = [line for line in chosen if line.error is not None]
    if unreadable and not damaged:
        raise InvalidRequestError(unreadable[0].error or "", job=job, object_name=layout.pin(unreadable[0].pin))
    return chosen


def _old(pins: Iterable[Pin], before_ms: int) -> list[Pin]:
    return [pin for pin in pins if pin.created_ms <= before_ms and pin.holder != retention.HOLDER]
