"""A keyed function that is never twice the same: its state and its output agree only if they come from one attempt.

For each row it draws a random token, yields it with the token before, and keeps it. So the rows of a key that the sink
has got form a chain, from batch to batch, if and only if each batch was executed on the state whose rows the sink has
got (I2), and on nothing else (I3). A second one behind it keeps what it was given as well, which shows whether it was
given just the rows whose state was committed.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row

import varvite
from varvite import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

TOKEN_OUTPUT = "k string, v long, n long, previous string, token string"
FOLLOWED_OUTPUT = f"{TOKEN_OUTPUT}, given string, own_previous string, own string"
WAIT_S = 120.0

UNTIL_SUNK = "until the batch is in the sink"
UNTIL_SECOND = "until another execution is as far"
UNTIL_RELEASED = "until the test says so"
LOSE_SHUFFLE = "delete all shuffle files, and die"


class TokenFunction(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """A function that draws a token for each row and keeps it, and is paused at some rows.

    Args:
        notes: A directory that all processes and the test share.
        pauses: By a row's `v`: what the first execution that comes to it does before it goes on.
    """

    def __init__(self, notes: Path, pauses: Mapping[int, str]) -> None:
        self.notes = notes
        self.pauses = dict(pauses)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.token = runtime_context.get_state(ValueStateDescriptor("token", Types.STRING()))

    def draw(self) -> tuple[str, str]:
        """The key's token before, "" if there was none, and the new one."""
        previous, token = self.token.value() or "", uuid.uuid4().hex
        self.token.update(token)
        return previous, token

    def pause_at(self, v: int) -> None:
        """Do what is to be done at this row, if it is the first execution that comes to it."""
        if v not in self.pauses:
            return
        mine = note(self.notes, f"process-{os.getpid()}", v)
        mine.write_text(os.environ["SPARK_LOCAL_DIRS"])
        try:
            os.link(mine, note(self.notes, "first", v))
        except FileExistsError:
            note(self.notes, "second", v).touch()
            return
        kind = self.pauses[v]
        if kind == LOSE_SHUFFLE:
            for directory in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for path in Path(directory).glob("*/shuffle_*"):
                    path.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for(note(self.notes, {UNTIL_SUNK: "sunk", UNTIL_SECOND: "second"}.get(kind, "released"), v))


class Tokens(TokenFunction):
    """As the module's text says."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.pause_at(value.v)
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value.k, value.v, n, *self.draw()


class FollowingTokens(TokenFunction):
    """Behind `Tokens`: it draws tokens, too, and yields with them the token that it was given with the row before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.given = runtime_context.get_state(ValueStateDescriptor("given", Types.STRING()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        self.pause_at(value.v)
        given = self.given.value() or ""
        self.given.update(value.token)
        yield (*value, given, *self.draw())


def note(notes: Path, what: str, v: int) -> Path:
    """The file that says that something has happened to the row with this value."""
    return notes / f"{what}-{v}"


def wait_for(path: Path, timeout_s: float = WAIT_S) -> bool:
    """Wait until a file exists; whether it does."""
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def check_chains(rows: Iterable[Sequence[Any]], batches: Sequence[Sequence[tuple[str, int]]]) -> dict[str, str]:
    """The output is that of one execution of each batch on the one before; the newest token of each key.

    Args:
        rows: What the sink holds, as `TOKEN_OUTPUT`.
        batches: The input; the rows of a key within a batch may come in any order.
    """
    by_key: dict[str, list[Sequence[Any]]] = {}
    for row in sorted(rows, key=lambda r: (r[0], r[2])):
        by_key.setdefault(row[0], []).append(row)
    newest: dict[str, str] = {}
    for key, found in by_key.items():
        assert [r[2] for r in found] == list(range(1, len(found) + 1)), f"{key}: a row is missing or there twice"
        for before, row in zip([None, *found], found, strict=False):
            assert row[3] == ("" if before is None else before[4]), f"{key}: the state is not that of the output: {row}"
        newest[key] = found[-1][4]
    expected = sorted(row for batch in batches for row in batch)
    assert sorted((r[0], r[1]) for found in by_key.values() for r in found) == expected
    return newest


def check_following(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """The second operator's batches were executed each on the one before, too; the newest token of each key.

    Args:
        rows: What the sink holds, as `FOLLOWED_OUTPUT`; each key once per batch. That of the first is `check_chains`.
    """
    newest: dict[str, str] = {}
    for row in sorted(rows, key=lambda r: (r[0], r[2])):
        assert row[5] == row[3], f"{row[0]}: the state of the second operator is not of what the first one gave: {row}"
        assert row[6] == newest.get(row[0], ""), f"{row[0]}: the state is not that of the output: {row}"
        newest[row[0]] = row[7]
    return newest


def check_state(storage: Path, newest: Mapping[str, str], uid: str) -> None:
    """The state that is stored holds the newest token of each key."""
    with varvite.open_state(str(storage), job="job") as state:
        table = state.to_arrow(uid, "token")
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == newest
