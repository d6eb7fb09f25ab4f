"""The wheel of the project as it is here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.tidy.project_files import ROOT

PACKAGES = ("storage", "changelog", "materializer", "spark_integration")


def build_wheel(directory: Path) -> Path:
    """Build the wheel, and return it; the directory is for it and for a copy of the project.

    The installed setuptools builds if it is new enough, which needs no network; else pip fetches one.
    """
    source, target = _copy_of_the_project(directory / "source"), directory / "wheel"
    in_place = int(version("setuptools").split(".")[0]) >= 77
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(target), str(source)]
    done = subprocess.run(
        [*command, *(["--no-build-isolation"] if in_place else [])], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.glob("varvite-*.whl")
    return wheel


def _copy_of_the_project(target: Path) -> Path:
    """Files that a build needs, links kept as links; a build in place would leave its directories in the project."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    for name in ("src", *PACKAGES):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    return target
