"""`varvite` in the process of the test."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from varvite.materializer.commands.cli import main


def command(*arguments: str) -> list[Any]:
    """Output of `varvite` as JSON lines; it must end well."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
