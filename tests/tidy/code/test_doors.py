"""Users import public names only: what examples and guides show must not break when a module moves."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from examples.flights import chaos
from tests.tidy.pages.doc_blocks import all_blocks
from tests.tidy.project_files import ROOT
from varvite import extending

DOORS = re.compile(r"varvite(\.(datastream|common|testing|extending)(\.[\w.]+)?|\.storage\.errors)?")
INNER = ("storage", "changelog", "materializer", "spark_integration")
SOURCES = {
    **{str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))},
    **{
        block.name: block.text
        for block in all_blocks()
        if block.language == "python" and block.document.startswith(("docs/guide/", "docs/operate/", "README"))
    },
}


def inner_imports(source: str) -> list[str]:
    """The imported modules of varvite that are no public ones."""
    modules = re.findall(r"^\s*(?:from|import)\s+(varvite[\w.]*)", source, re.MULTILINE)
    names = re.findall(r"^\s*from\s+varvite\s+import\s+(\([^)]*\)|.*)", source, re.MULTILINE)
    modules += [f"varvite.{name}" for text in names for name in re.findall(r"\w+", text) if name in INNER]
    return [module for module in modules if not DOORS.fullmatch(module)]


def test_inner_imports_are_seen() -> None:
    good = "from varvite import Sink\nimport varvite\nfrom varvite.storage.errors import VarviteError\n"
    assert inner_imports(good + "from varvite.testing.contracts import LogStoreContract\n") == []
    bad = "from varvite.storage.clock import SystemClock\nfrom varvite import Sink, changelog\nimport varvite.storage\n"
    assert inner_imports(bad) == ["varvite.storage.clock", "varvite.storage", "varvite.changelog"]


@pytest.mark.parametrize("name", SOURCES)
def test_only_public_modules_are_imported(name: str) -> None:
    assert inner_imports(SOURCES[name]) == []


def test_the_table_of_extension_points_is_complete() -> None:
    rows = [line for line in (extending.__doc__ or "").splitlines() if line.startswith("| ")]
    assert sorted(re.findall(r"`(\w+)`", "\n".join(rows))) == sorted(extending.__all__)


def test_the_demo_finds_state_workers_by_their_module() -> None:
    assert find_spec(chaos.STATE_WORKERS) is not None
