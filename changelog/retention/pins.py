"""Pins: a reader, a savepoint copy or another job keeps a commit complete while it needs it.

The owner of a pin writes it first and reads the head afterwards. A collector reads the head first and the pins
afterwards. So a collector either sees the pin, or works with a `keep_from` that the pin's owner has seen to be low
enough (I7; `docs/internals/commit-protocol.md#pin`).

A commit that only a pin keeps can be pinned as well. That pin must be of an older commit, marked as checked by its
owner, and still listed after the new pin was written. A collector that listed the pins earlier has seen the older pin,
or works with bounds that its owner has seen to be low enough.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.storage.errors import CorruptDataError, DidNotHappenError, MissingObjectError, RetryableError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.identity import check_record
from varvite.storage.format.records import Pin, decode_record, encode_record
from varvite.storage.object_stores.backoff import Backoff

if TYPE_CHECKING:
    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit
    from varvite.storage.object_stores.contract import ObjectStore

PIN_BACKOFF: Final = Backoff(attempts=4, initial_s=0.1, maximum_s=1.0)


def create_pin(
    reader: ChainReader, commit: Commit, holder: str, clock: Clock, tokens: TokenSource, *, for_others: bool = False
) -> Pin:
    """Keep everything that `commit` needs until `release_pin`.

    Args:
        reader: Of the job's chain.
        commit: The commit to keep.
        holder: A text for people: who needs it, and why.
        clock: For the creation time and pauses.
        tokens: For the pin's name.
        for_others: Mark the pin as checked, so that others may pin commits that only it keeps; costs a second PUT.

    Raises `DidNotHappenError` if the commit was truncated before it was pinned: take a newer one.
    """
    pin = Pin(
        token=tokens.token(),
        holder=holder,
        needs_from=commit.needs_from,
        commit=commit.link,
        created_ms=clock.now_ms(),
    )
    try:
        _put(reader, pin, clock)
        _check(reader, commit, pin)
        if for_others:
            pin = msgspec.structs.replace(pin, is_checked=True)
            _put(reader, pin, clock)
    except VarviteError:
        release_pin(reader, pin, clock)
        raise
    return pin


def _check(reader: ChainReader, commit: Commit, new: Pin) -> None:
    """Raise `DidNotHappenError` if the commit was not complete when its pin was written."""
    head = reader.head(commit.seq)
    if head is not None and bounds_of(head).is_complete(commit):
        return
    if any(_keeps(pin, commit) for pin in list_pins(reader) if pin.token != new.token):
        return
    raise DidNotHappenError(
        f"commit {commit.seq} (batch {commit.batch}) is no longer complete: "
        f"{bounds_of(head).missing(commit) if head else 'the chain is gone'}; choose a newer checkpoint",
        batch=commit.batch,
    )


def _keeps(pin: Pin, commit: Commit) -> bool:
    """Tell whether a pin certainly keeps this commit: it is checked, and of an older commit or of this one."""
    return pin.is_checked and pin.needs_from <= commit.needs_from and pin.commit.seq <= commit.seq


class Retention(NamedTuple):
    """The head's bounds and the pins, which decide whether a commit is certainly complete and can be pinned.

    A collector keeps more than that because of the pins: everything from their `needs_from` on, also objects that were
    garbage already when the pins were written, such as the bases of commits before the pinned one.
    """

    bounds: RetentionBounds
    """The head's."""
    pins: tuple[Pin, ...]
    """Listed after the head was read."""

    @property
    def complete_from(self) -> int:
        """No commit of a lower seq is complete."""
        checked = (pin.commit.seq for pin in self.pins if pin.is_checked)
        return min((self.bounds.complete_from, *checked))

    def is_complete(self, commit: Commit) -> bool:
        """Tell whether everything that a restore of the commit reads is kept."""
        return self.bounds.is_complete(commit) or any(_keeps(pin, commit) for pin in self.pins)


def release_pin(reader: ChainReader, pin: Pin, clock: Clock) -> None:
    """Delete the pin. Idempotent. A pin that cannot be deleted only keeps too much."""
    for pause_s in PIN_BACKOFF.pauses():
        clock.sleep(pause_s)
        try:
            reader.store.delete([layout.pin(pin.token)])
        except RetryableError:
            continue
        return


class ListedPin(NamedTuple):
    """A pin, or the error that it cannot be read."""

    name: str
    """The pin's token."""
    pin: Pin | CorruptDataError


def list_pins(reader: ChainReader) -> tuple[Pin, ...]:
    """All pins. Raises `CorruptDataError` if one cannot be read: then nothing may be deleted."""
    pins: list[Pin] = []
    for listed in list_all_pins(reader):
        if isinstance(listed.pin, CorruptDataError):
            raise listed.pin
        pins.append(listed.pin)
    return tuple(pins)


def readable_pins(reader: ChainReader) -> tuple[Pin, ...]:
    """The pins that can be read; for what deletes nothing."""
    return tuple(listed.pin for listed in list_all_pins(reader) if isinstance(listed.pin, Pin))


def list_all_pins(reader: ChainReader) -> tuple[ListedPin, ...]:
    """All pins, damaged ones included."""
    names = [meta.name for meta in reader.store.list(layout.PINS)]
    listed = in_parallel(partial(_read, reader.store), names)
    return tuple(pin for pin in listed if pin is not None)


def _read(store: ObjectStore, object_name: str) -> ListedPin | None:
    name = layout.text_of(object_name)
    try:
        pin = decode_record(store.get(object_name), Pin, object_name)
        check_record(pin, object_name)
        return ListedPin(name, pin)
    except MissingObjectError:
        return None
    except CorruptDataError as error:
        return ListedPin(name, _damaged(name, error))


def _damaged(name: str, error: CorruptDataError) -> CorruptDataError:
    damaged = CorruptDataError(
        f"the pin cannot be read ({error.message}), and nothing is deleted as long as it is there, for nobody knows "
        "what it keeps; when no reader is left that may have made it, `varvite pins release JOB "
        f"{name} --damaged` removes it",
        **error.context,
    )
    damaged.__cause__ = error
    return damaged


def _put(reader: ChainReader, pin: Pin, clock: Clock) -> None:
    """Put the pin, with retries: they write the same bytes under a name that no other writer uses."""
    last: RetryableError | None = None
    for pause_s in PIN_BACKOFF.pauses():
        clock.sleep(pause_s)
        try:
            reader.store.put(layout.pin(pin.token), encode_record(pin))
        except RetryableError as error:
            last = error
            continue
        return
    raise DidNotHappenError(f"the pin could not be written; try again ({last})", object_name=layout.pin(pin.token))
