"""`varvite pins`: what readers keep in a job's storage, and letting go of what a killed one has left behind.

No clock decides that a reader is dead, so nothing releases its pin but an operator, who says which, or how old.
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
    """The checkpoint that is kept."""
    created: str | None = None
    """By the holder's clock."""
    entries: int | None = None
    """Entries of the chain, and what belongs to them, that only this pin and older ones keep from being deleted."""
    error: str | None = None
    """Why the pin cannot be read; then nothing else is known of it, and nothing of the job is deleted."""


@click.group()
def pins() -> None:
    """What readers keep from being deleted while they read."""


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
    """Release pins of JOB: those that are named, or the old ones; what only they kept goes with the next collection.

    The pins of the retention by time are never old: the materializer releases them. A reader whose pin is released
    while it reads fails, but never reads anything wrong.
    """
    try:
        if bool(names) == (age_ms is not None):
            raise InvalidRequestError("say which pins to release: name them, or give --older-than")
        if damaged and age_ms is not None:
            raise InvalidRequestError("--damaged goes with pins that are named: of what cannot be read no age is known")
        reader = job_chain(job, storage_url, storage_options)
        listed = list_all_pins(reader)
        lines = _lines(job, reader, listed)
        if age_ms is not None:
            chosen = [lines[pin] for pin in _old(lines, SystemClock().now_ms() - age_ms)]
        else:
            chosen = _named([*lines.values(), *_damaged(job, listed)], names, job, damaged=damaged)
        if not dry_run:
            reader.store.delete([layout.pin(line.pin) for line in chosen])
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines(chosen, as_json=as_json, rare=("error",))


def _lines(job: str, reader: ChainReader, listed: Sequence[ListedPin]) -> dict[Pin, PinLine]:
    """Of the pins that can be read, the oldest first."""
    head = reader.head()
    keep_from = head.keep_from if head is not None else 0
    readable = [one.pin for one in listed if not isinstance(one.pin, CorruptDataError)]
    found = sorted(readable, key=lambda pin: (pin.needs_from, pin.created_ms, pin.token))
    ends = [*(pin.needs_from for pin in found[1:]), keep_from]
    return {pin: _line(job, pin, min(end, keep_from)) for pin, end in zip(found, ends, strict=False)}


def _damaged(job: str, listed: Sequence[ListedPin]) -> list[PinLine]:
    return [
        PinLine(job=job, pin=one.name, error=one.pin.message) for one in listed if isinstance(one.pin, CorruptDataError)
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


def _named(found: Sequence[PinLine], names: Collection[str], job: str, *, damaged: bool) -> list[PinLine]:
    """The pins of these names. Raises `InvalidRequestError` if there is no such pin, or one is damaged unexpectedly."""
    unknown = set(names) - {line.pin for line in found}
    if unknown:
        raise InvalidRequestError(f"there is no pin {min(unknown)}; see `varvite pins list`", job=job)
    named = [line for line in found if line.pin in names]
    unreadable = [line for line in named if line.error is not None]
    if unreadable and not damaged:
        raise InvalidRequestError(unreadable[0].error or "", job=job, object_name=layout.pin(unreadable[0].pin))
    return named


def _old(found: Iterable[Pin], before_ms: int) -> list[Pin]:
    return [pin for pin in found if pin.created_ms <= before_ms and pin.holder != retention.HOLDER]
