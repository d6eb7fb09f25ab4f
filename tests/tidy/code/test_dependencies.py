"""Imports of the product at import time are among its dependencies: executors get nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.environments.declared import DEPENDENCIES, lowest
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


def test_what_functions_import_is_a_dependency_or_of_an_extra_for_users() -> None:
    """pandas was none, and every job failed where only the wheel was installed: PySpark's mapInArrow imports it too."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = ("s3", "encryption", "kafka", "delta", "iceberg", "postgres", "avro", "tools")
    for_users = [text for name in names for text in extras[name]]
    of_extras = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in for_users}
    needed: dict[str, Path] = {}
    for path in SOURCES:
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            needed |= dict.fromkeys(imported(ast.unparse(function.body)), path)
    assert "pandas" in needed
    missing = {COMES_WITH.get(name, name) for name in needed} - declared() - of_extras
    assert not missing, f"{missing}, see {[str(needed[name]) for name in missing]}"
    assert "pandas" in declared()


def test_each_dependency_has_a_lowest_version_which_is_tried() -> None:
    assert lowest("pyspark>=4.2,<4.4") == "pyspark==4.2"
    assert len({lowest(text) for text in DEPENDENCIES}) == len(DEPENDENCIES)
    with pytest.raises(ValueError, match="not enough values"):
        lowest("pyspark<4.4")
