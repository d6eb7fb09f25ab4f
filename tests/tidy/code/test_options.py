"""An option is declared once: its key stands in one place, and everything else is derived from there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tidy.project_files import ROOT
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.options.page import render
from varvite.storage.options.table import STORAGE_OPTION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.storage.options.declaration import ConfigOption

PRODUCT = ("storage", "changelog", "materializer", "spark_integration", "src/varvite/testing", "src/varvite/extending")
WORDS_MAX = 30
"""Of a sentence."""
KEYS = [*OPTIONS.options, *OPTIONS.current_keys]
NAME = re.compile(rf"(?<![\w.])(?:{'|'.join(OPTIONS.sections)})\.[a-z][\w.-]*\w")
"""A word that looks like an option's key."""


def texts_of(module: Path) -> Iterator[str]:
    """All string literals but docstrings."""
    tree = ast.parse(module.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@cache
def product_texts() -> Counter[str]:
    modules = [module for directory in PRODUCT for module in sorted((ROOT / directory).rglob("*.py"))]
    return Counter(text for module in modules for text in texts_of(module))


@pytest.mark.parametrize("key", KEYS)
def test_a_key_stands_in_one_place(key: str) -> None:
    assert product_texts()[key] == 1


def test_every_option_that_a_message_names_exists_and_is_not_an_older_one() -> None:
    sentences = [text for text in product_texts() if " " in text]
    names = {name for text in sentences for name in NAME.findall(text)}
    assert names
    assert {name for name in names if name not in OPTIONS.options and not is_a_group(name)} == set()


def is_a_group(name: str) -> bool:
    """Options of one beginning, or a storage option."""
    return name.startswith(STORAGE_OPTION_PREFIX) or any(key.startswith(f"{name}.") for key in OPTIONS.options)


@pytest.mark.parametrize("option", OPTIONS.options.values(), ids=lambda option: option.key)
def test_an_option_says_what_it_is_and_is_on_the_page(option: ConfigOption) -> None:
    assert option.type.name
    assert re.fullmatch(r"[A-Z`][^|]*\.", option.description), "sentences that fit into a table"
    assert max(len(sentence.split()) for sentence in re.split(r"[.:;] ", option.description)) <= WORDS_MAX
    assert not option.unset or option.default is None
    assert not re.search(r"[A-Z].*\.$", option.unset), "a phrase"
    assert option.default is None or option.read(option.default_text) == option.default
    assert render().count(f"\n| `{option.key}` | {option.type.name} | ") == 1


def test_the_keys_are_all_different() -> None:
    assert len(KEYS) == len(set(KEYS))
    assert not set(OPTIONS.options) & set(OPTIONS.current_keys)
