"""Directories that one can survey: few entries each, and packages whose `__init__` says what each module owns."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.project_files import ROOT, project_files

PACKAGES = ("storage", "changelog", "materializer", "spark_integration")
ENTRIES_MAX = 16
CROWDED: dict[str, str] = {
    ".": "the owner fixed the directories; the rest are files that tools look for here",
    "src/varvite/common": "PyFlink's modules, where its users look for their names",
    "src/varvite/datastream": "PyFlink's modules, where its users look for their names",
    "tests/golden/data": "one entry per format and version that was ever written",
    "tests/golden/data/v1": "one file per kind of record that was ever written",
}
"""Directory → why it has more entries than one can survey."""
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<owns>\S.*) \|$", re.MULTILINE)


def entries() -> dict[str, set[str]]:
    """Directory, from the root → names of the files and directories in it, but for `__init__.py`."""
    names: dict[str, set[str]] = {}
    for path in project_files():
        parts = path.relative_to(ROOT).parts
        for depth, name in enumerate(parts):
            names.setdefault(str(Path(*parts[:depth])), set()).add(name)
    return {directory: content - {"__init__.py"} for directory, content in names.items()}


def packages() -> list[Path]:
    """Directories of the product with an `__init__.py`, the four at the top included."""
    return sorted(path.parent for name in PACKAGES for path in (ROOT / name).rglob("__init__.py"))


def modules_of(package: Path) -> set[str]:
    """Modules and packages right below a package."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def test_a_directory_can_be_surveyed() -> None:
    crowded = {directory: len(names) for directory, names in entries().items() if len(names) > ENTRIES_MAX}
    assert crowded.keys() == CROWDED.keys(), f"divide them: {crowded}"


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_what_each_of_its_modules_owns(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    rows = [match["name"] for match in ROW.finditer(text)]
    assert len(rows) == len(set(rows))
    assert set(rows) == modules_of(package)
    assert not text.startswith("|"), "a paragraph stands before the table"
