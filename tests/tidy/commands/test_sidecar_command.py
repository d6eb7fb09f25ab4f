"""The sidecar's command line has the options that the documentation and `deploy/` use."""

from __future__ import annotations

import subprocess
import sys

import pytest

USED = [
    "--storage",
    "--job",
    "--interval",
    "--once",
    "--now",
    "--log-bytes",
    "--log-batches",
    "--log-ratio",
    "--replay-time",
    "--space-ratio",
    "--max-failures-allowed",
    "--parallel",
    "--memory",
    "--disk",
    "--bandwidth",
    "--share",
    "--retention",
    "--collect-interval",
    "--grace",
    "--metrics-port",
    "--metrics-host",
    "--json",
    "--status-file",
]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            ("-c", "from varvite.materializer.commands.cli import main; main()", "materialize"),
            id="varvite materialize",
        ),
        pytest.param(("-m", "varvite.materializer"), id="python -m varvite.materializer"),
    ],
)
def test_documented_options_of_the_sidecar_exist(program: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *program, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [option for option in USED if option not in done.stdout] == []
