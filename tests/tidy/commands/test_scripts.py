"""Shell scripts: they parse, can be started, and stop at the first failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.tidy.project_files import ROOT

SCRIPTS = sorted([*(ROOT / "deploy").rglob("*.sh"), ROOT / ".ci" / "run"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_parses_and_is_strict(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert os.access(script, os.X_OK)


def test_an_environment_never_replaces_a_directory_of_another_kind(tmp_path: Path) -> None:
    """`make test VENV=<a directory with one's own files>` must not delete them."""
    (tmp_path / "precious").write_text("x")
    done = subprocess.run([ROOT / "deploy" / "make_venv.sh", tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (tmp_path / "precious").exists()
