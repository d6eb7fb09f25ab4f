"""Rules of CONTRIBUTING.md for docstrings and names that a program can check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.project_files import ROOT, project_files

PRODUCT = ("storage", "changelog", "materializer", "spark_integration", "src")
QUESTION = re.compile(r"(What|Which|Whether|How|Where|When|From|Who|Whose|Whom|Why|Whatever|Whoever|Wherever)\b")
POINTER = re.compile(r"(See|As) `?[\w.]+`?\.?")
ROLES = frozenset({"found", "told", "given", "asked", "own", "one", "wanted"})
"""Roles in a sentence, not names of things."""


@cache
def sources() -> dict[str, ast.Module]:
    """Path from the root → syntax tree, of all Python files of the project."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in project_files() if path.suffix == ".py"
    }


def product() -> dict[str, ast.Module]:
    """The sources that users run."""
    return {name: tree for name, tree in sources().items() if Path(name).parts[0] in PRODUCT}


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Every docstring: of modules, classes and functions, and those under fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            match child:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield text.strip()


def role_names(tree: ast.AST) -> Iterator[str]:
    """Variables and parameters that have a role for a name."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) if name.strip("_") in ROLES:
                yield name


def test_a_docstring_begins_with_a_noun_phrase_or_a_verb() -> None:
    texts = [(name, text.split("\n")[0]) for name, tree in sources().items() for text in docstrings(tree)]
    assert [(name, text) for name, text in texts if QUESTION.match(text)] == []


def test_a_docstring_says_something_itself() -> None:
    texts = [(name, text) for name, tree in product().items() for text in docstrings(tree)]
    assert [(name, text) for name, text in texts if POINTER.fullmatch(text) or "See the module" in text] == []


def test_values_have_nouns_for_names() -> None:
    assert [(name, role) for name, tree in product().items() for role in role_names(tree)] == []


def test_what_breaks_a_rule_is_noticed() -> None:
    source = '"""How it is."""\nclass A:\n    """A."""\n    x: int\n    """Which x."""\ndef f(given): own = given\n'
    tree = ast.parse(source)
    assert [text for text in docstrings(tree) if QUESTION.match(text)] == ["How it is.", "Which x."]
    assert sorted(role_names(tree)) == ["given", "own"]
