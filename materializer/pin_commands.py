"""`varve pins`: what readers keep in a job's storage, and letting go of what a killed one has left behind.

No clock decides that a reader is dead, so nothing releases its pin but an operator, who says which, or how old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from varve.materializer import retention
from varve.materializer.command_output import show_lines, utc_time
from varve.materializer.parameter_types import DURATION
from varve.materializer.storage_parameters import job_chain, storage_parameters
from varve.storage import layout
from varve.storage.clock import SystemClock
from varve.storage.errors import InvalidRequestError, VarveError
from varve.storage.pins import list_pins

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from varve.storage.chain_reader import ChainReader
    from varve.storage.records import Pin


class PinLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varve pins`."""

    job: str
    pin: str
    holder: str
    seq: int
    """The checkpoint that is kept."""
    created: str
    """By the holder's clock."""
    entries: int
    """Entries of the chain, and what belongs to them, that only this pin and older ones keep from being deleted."""


@click.group()
def pins() -> None:
    """What readers keep from being deleted while they read."""


@pins.command(name="list")
@click.argument("job")
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def list_(job: str, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """List the pins of JOB, the oldest first."""
    try:
        lines = _lines(job, job_chain(job, storage_url, storage_options))
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([line for _, line in lines], as_json=as_json)


@pins.command()
@click.argument("job")
@click.argument("names", nargs=-1, metavar="[PIN]...")
@storage_parameters(required=True)
@click.option("--older-than", "age_ms", type=DURATION, help="All pins that were made so long ago, or earlier.")
@click.option("--dry-run", is_flag=True, help="Only say what would be released.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def release(
    job: str,
    names: tuple[str, ...],
    storage_url: str,
    storage_options: dict[str, Any] | None,
    *,
    age_ms: int | None,
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
        reader = job_chain(job, storage_url, storage_options)
        lines = _lines(job, reader)
        found = [pin for pin, _ in lines]
        chosen = _named(found, names, job) if age_ms is None else _old(found, SystemClock().now_ms() - age_ms)
        if not dry_run:
            reader.store.delete([layout.pin(pin.token) for pin in chosen])
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([line for pin, line in lines if pin in chosen], as_json=as_json)


def _lines(job: str, reader: ChainReader) -> list[tuple[Pin, PinLine]]:
    head = reader.head()
    keep_from = head.keep_from if head is not None else 0
    found = sorted(list_pins(reader), key=lambda pin: (pin.needs_from, pin.created_ms, pin.token))
    ends = [*(pin.needs_from for pin in found[1:]), keep_from]
    return [(pin, _line(job, pin, min(end, keep_from))) for pin, end in zip(found, ends, strict=False)]


def _line(job: str, pin: Pin, until: int) -> PinLine:
    return PinLine(
        job=job,
        pin=pin.token,
        holder=pin.holder,
        seq=pin.commit.seq,
        created=utc_time(pin.created_ms),
        entries=max(0, until - pin.needs_from),
    )


def _named(found: Sequence[Pin], names: Collection[str], job: str) -> list[Pin]:
    """The pins of these names. Raises `InvalidRequestError` if there is no such pin."""
    unknown = set(names) - {pin.token for pin in found}
    if unknown:
        raise InvalidRequestError(f"there is no pin {min(unknown)}; see `varve pins list`", job=job)
    return [pin for pin in found if pin.token in names]


def _old(found: Sequence[Pin], before_ms: int) -> list[Pin]:
    return [pin for pin in found if pin.created_ms <= before_ms and pin.holder != retention.HOLDER]
