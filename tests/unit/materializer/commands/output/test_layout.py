"""Tables in the width of a terminal: nothing is cut, whatever the width."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.jobs.committing_job import CommittingJob
from tests.jobs.state_model import BatchChanges
from tests.stores.manual_clock import ManualClock
from varvite.materializer.commands.cli import main
from varvite.materializer.commands.output.layout import TableText, laid_out
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

STATES = TableText(
    ("seq", "operator", "state", "kind", "ttl ms"),
    (("5", "flights", "total", "value", "-"), ("5", "flights", "by_name", "map", "-")),
)


def shown(table: TableText, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    for part in laid_out(table, width):
        console.print(part)
    found = console.file
    assert isinstance(found, io.StringIO)
    return found.getvalue()


def test_a_table_that_fits_is_shown_whole() -> None:
    assert STATES.width == len(shown(STATES, 80).splitlines()[0])
    assert "ttl ms" in shown(STATES, STATES.width)


def test_what_is_the_same_in_all_rows_is_told_once_where_it_is_narrow() -> None:
    text = shown(STATES, STATES.width - 1)
    assert text.count("flights") == 1
    assert "ttl ms" not in text
    assert "by_name" in text
    assert max(map(len, text.splitlines())) < STATES.width


@pytest.mark.parametrize("width", [20, 40, 80])
def test_rows_that_do_not_fit_are_blocks_and_long_values_go_on_in_the_next_line(width: int) -> None:
    values = ("x" * 100, "[red]not markup[/red]")
    text = shown(TableText(("key", "value"), (values, ("k", "v"))), width)
    assert "1 of 2" in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("x") == 100
    assert "[red]" in text, "cells are no markup"
    assert "…" not in text


@pytest.mark.parametrize("columns", ["80", "120"])
def test_no_command_cuts_names_or_values(columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal of the usual widths, and in a pipe."""
    names = ["flights", "a-job-with-a-rather-long-name-of-many-words"]
    for name in names:
        job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), name), ManualClock(), name=name)
        job.start()
        for value in (1, 2):
            job.commit(BatchChanges(totals={"k": value}, events={"k" * 300: (False, ["e" * 300])}))
        job.close()
    monkeypatch.setenv("COLUMNS", columns)
    for arguments, told in (
        (["jobs"], names[1]),
        (["sweep", "--dry-run"], names[1]),
        (["describe", "flights"], "map key type"),
        (["checkpoints", "flights"], "mutations"),
        (["state", "flights", "events"], "e" * 300),
        (["state", "flights", "--count"], "largest group"),
        (["diff", "flights", "--from", "batch:0", "--state", "events"], "e" * 300),
    ):
        for terminal in ("", "1"):
            monkeypatch.setenv("FORCE_COLOR", terminal)
            done = CliRunner().invoke(main, [*arguments, "--storage", str(tmp_path)])
            assert done.exit_code == 0, done.output
            assert "…" not in done.output
            if terminal:
                assert told[:20] in done.output
            else:
                assert told in done.output, "a pipe has whole lines"
