"""Modules and functions stay of a size that one can read; what is larger is listed here with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.project_files import ROOT

DIRECTORIES = (
    "storage", "changelog", "materializer", "spark_integration", "src", "tests", "benchmarks", "examples", "deploy"
)  # fmt: skip
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

LARGE_MODULES: dict[str, str] = {
    "spark_integration/api/environment.py": "PyFlink's environment: signatures and docstrings over options/ and plan/",
    "spark_integration/api/stream.py": "signatures and docstrings of a stream's methods, each one a line over plan/",
}
"""Path → why the module is one module."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`path::function` → why the function is one function."""

SOURCES = sorted({path.resolve() for name in DIRECTORIES for path in (ROOT / name).rglob("*.py")})


def long_functions(source: str, limit: int) -> list[tuple[str, int]]:
    """(qualified name, lines) of the functions with more than `limit` lines, docstring included."""
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{inside}.{child.name}".lstrip(".")
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                if lines > limit and not isinstance(child, ast.ClassDef):
                    found.append((name, lines))
            visit(child, name)

    visit(ast.parse(source), "")
    return found


def test_long_functions_are_found() -> None:
    body = "        pass\n" * 3
    assert long_functions(f"class A:\n    def f(self):\n{body}", 4) == []
    assert long_functions(f"class A:\n    def f(self):\n{body}", 3) == [("A.f", 4)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    name, source = str(path.relative_to(ROOT)), path.read_text()
    lines = source.count("\n")
    assert lines <= MODULE_LINES_MAX or name in LARGE_MODULES, f"{name} has {lines} lines: split it"
    for function, length in long_functions(source, FUNCTION_LINES_MAX):
        assert f"{name}::{function}" in LONG_FUNCTIONS, f"{name}: {function} has {length} lines: split it"


def test_the_lists_of_exceptions_are_current() -> None:
    large = {str(path.relative_to(ROOT)) for path in SOURCES if path.read_text().count("\n") > MODULE_LINES_MAX}
    long = {
        f"{path.relative_to(ROOT)}::{function}"
        for path in SOURCES
        for function, _ in long_functions(path.read_text(), FUNCTION_LINES_MAX)
    }
    assert set(LARGE_MODULES) <= large
    assert set(LONG_FUNCTIONS) <= long
