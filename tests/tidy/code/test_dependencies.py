"""Imports of the product at import time are among its dependencies: executors get nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.project_files import ROOT

SOURCES = sorted(
    path
    for name in ("storage", "changelog", "materializer", "spark_integration")
    for path in (ROOT / name).rglob("*.py")
)
COMES_WITH = {"py4j": "pyspark"}
"""Module → the dependency that brings it."""


def imported(source: str) -> set[str]:
    """Top-level packages that a module imports at once; imports in functions and for type checkers do not count."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"varvite"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w.-]+", text) for text in project["dependencies"]]
    return {name.group().lower().replace("-", "_") for name in names if name is not None}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_module_imports_is_a_dependency(path: Path) -> None:
    missing = {COMES_WITH.get(name, name) for name in imported(path.read_text())} - declared()
    assert not missing, f"name {sorted(missing)} among the dependencies in pyproject.toml"


def test_imports_are_found() -> None:
    assert imported("import numpy as np\nfrom a.b import c\nimport os\nif X:\n    import d\n") == {"numpy", "a"}
