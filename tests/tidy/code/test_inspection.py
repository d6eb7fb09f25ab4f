"""msgspec decodes only classes that it has inspected, in one thread at a time (`storage/format/inspection.py`)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.tidy.project_files import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORIES = ("storage", "changelog", "materializer", "spark_integration", "src/varvite/testing")
PLAIN = {"Any", "bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple"}
"""Names in types without classes."""
PLAIN_ATTRIBUTES = {"wire_schema"}
"""Attributes whose values are such types."""
TYPE_POSITION = {"Decoder": 0, "convert": 1, "decode": 1}


def uninspected_types(source: str) -> Iterator[ast.expr]:
    """The types given to msgspec that are neither plain nor inspected."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        if not isinstance(call.func, ast.Attribute) or not ast.unparse(call.func).startswith("msgspec."):
            continue
        position = TYPE_POSITION.get(call.func.attr)
        if position is not None:
            types = [k.value for k in call.keywords if k.arg == "type"] + call.args[position : position + 1]
            yield from (kind for kind in types if not is_safe(kind))


def is_safe(kind: ast.expr) -> bool:
    if isinstance(kind, ast.Call):
        return ast.unparse(kind.func) == "inspected"
    if isinstance(kind, ast.Attribute):
        return kind.attr in PLAIN_ATTRIBUTES
    if isinstance(kind, ast.Name):
        return kind.id in PLAIN
    return all(is_safe(child) for child in ast.iter_child_nodes(kind) if isinstance(child, ast.expr))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("msgspec.json.decode(b, type=Record)", 1),
        ("msgspec.json.decode(b, type=inspected(Record))", 0),
        ("msgspec.msgpack.decode(b)", 0),
        ("msgspec.msgpack.Decoder(list[tuple[int, bytes | None]])", 0),
        ("msgspec.msgpack.Decoder(list[Record])", 1),
        ("msgspec.msgpack.Decoder(list[kind.wire_schema])", 0),
        ("msgspec.convert(value, Record)", 1),
        ("msgspec.convert(value, type=Record | None)", 1),
    ],
)
def test_types_with_classes_are_recognised(source: str, count: int) -> None:
    assert len(list(uninspected_types(source))) == count


def test_every_class_is_inspected_before_it_is_decoded() -> None:
    texts = {path: path.read_text() for name in DIRECTORIES for path in (ROOT / name).rglob("*.py")}
    assert sum("inspected(" in text for text in texts.values()) > 5
    unsafe = [
        f"{path.relative_to(ROOT)}: {ast.unparse(kind)}" for path in texts for kind in uninspected_types(texts[path])
    ]
    assert unsafe == ["storage/format/inspection.py: kind"]
