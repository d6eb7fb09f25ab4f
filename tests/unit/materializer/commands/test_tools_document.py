"""The commands and the program of docs/operate/tools.md, over a job without Spark."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import CommittingJob, NumberedTokens
from tests.jobs.state_model import BatchChanges
from tests.stores.manual_clock import ManualClock
from tests.tidy.pages.doc_blocks import ROOT, blocks_of, commands_of
from varvite.changelog.retention.pins import create_pin
from varvite.materializer.commands.cli import main
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/operate/tools.md"
BLOCKS = blocks_of(PAGE, (ROOT / PAGE).read_text())
COMMANDS = [command for block in BLOCKS if block.language == "console" for command in commands_of(block)]
STORAGE = "file:///var/lib/varvite"


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """With the job of the page."""
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    job.commit(BatchChanges(totals={"N14228": 1, "a": 2}, by_name={"a": (False, {"x": 1})}))
    job.commit(BatchChanges(totals={"N14228": 3}, events={"a": (False, ["one", "two"])}))
    assert job.run is not None
    base = job.run.state.base
    assert base is not None
    create_pin(job.run.reader, base, "a killed tool", ManualClock(), NumberedTokens("pins"))
    job.close()
    return f"file://{tmp_path}"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(command: str, storage: str) -> None:
    name, *arguments = shlex.split(command.replace(STORAGE, storage))
    assert name == "varvite"
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    shown = {"describe": "by_name", "verify": "compared", "diff": "total", "pins": "a killed tool"}.get(
        arguments[0], "key"
    )
    assert shown in done.output
    assert "nothing found" not in done.output


def test_the_program_of_the_page_runs(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = [block for block in BLOCKS if "run" in block.tags]
    names: dict[str, Any] = {}
    exec(compile(block.text.replace(STORAGE, storage), block.name, "exec", dont_inherit=True), names)
    assert {row["key"]: row["value"] for row in names["totals"].to_pylist()} == {"N14228": 3, "a": 2}
    assert {row["key_group"] for row in names["some"].to_pylist()} <= set(range(4))
    assert capsys.readouterr().out.splitlines() == ["1 ('flights',) ['total', 'by_name', 'events', 'alarms']", "2"]
