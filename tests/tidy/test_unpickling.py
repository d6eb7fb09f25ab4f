"""Only what the user shipped with the job is unpickled; stored state never is, unless the user chose a pickled type.

A pickle runs code of whoever wrote it. So this list holds every place of the product that loads one, each with its
reason, and none of them but the last is given bytes from the storage.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIRECTORIES = ("storage", "changelog", "materializer", "spark_integration", "src")
ALLOWED: dict[str, str] = {
    "spark_integration/element_operator.py": "the user's function, which the driver has sent",
    "spark_integration/function_chain.py": "the user's functions, which the driver has sent",
    "spark_integration/operator_runner.py":
        "the user's function, which the driver has sent; an exception that this very process has pickled",
    "spark_integration/worker_conversation.py": "an exception that this very process has pickled",
    "spark_integration/pump.py": "an exception from the state worker, a process of this very job",
    "spark_integration/user_errors.py": "an exception from the state worker, a process of this very job",
    "changelog/collection_types.py": "values of the pickled type, which the user has chosen",
}  # fmt: skip
PICKLERS = frozenset({"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "_pickle", "CPickleSerializer"})
LOADERS = frozenset({"load", "loads", "Unpickler", "read_pickle", "open"})


def unpickling_lines(source: str) -> list[int]:
    """Lines that call a loader of a pickle module, or import one by its own name."""
    found: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in LOADERS:
            base = node.value
            name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
            if name in PICKLERS or node.attr in ("Unpickler", "read_pickle"):
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] in PICKLERS:
            found += [node.lineno for alias in node.names if alias.name in LOADERS]
    return found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import pickle\npickle.loads(b'')", [2]),
        ("from pyspark import cloudpickle\ncloudpickle.load(f)", [2]),
        ("import pyspark\npyspark.cloudpickle.loads(b'')", [2]),
        ("from pickle import loads", [1]),
        ("from pandas import x\nx.read_pickle(f)", [2]),
        ("import pickle\nclass A(pickle.Unpickler): pass", [2]),
        ("import json, pickle\njson.loads('1'); pickle.dumps(1)", []),
    ],
)
def test_unpickling_is_found(source: str, lines: list[int]) -> None:
    assert unpickling_lines(source) == lines


def test_nothing_is_unpickled_but_at_the_places_of_the_list() -> None:
    found = {
        str(path.relative_to(ROOT))
        for name in DIRECTORIES
        for path in {path.resolve() for path in (ROOT / name).rglob("*.py")}
        if unpickling_lines(path.read_text())
    }
    assert found == set(ALLOWED)


def test_neither_storage_nor_the_sidecar_can_unpickle() -> None:
    """They read what anybody with access to the storage can have written."""
    assert [name for name in ALLOWED if name.startswith(("storage/", "materializer/"))] == []
