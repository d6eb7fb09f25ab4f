"""Names, methods and parameters of PyFlink 2.3 and 1.20: a program that imports and calls them finds them.

`pyflink_names.txt` has the public names of each module, `pyflink_methods.txt` the methods and constructors of its
classes with their parameters; both were taken from PyFlink. What PyFlink's own code alone uses is not in them:
wrappers of Java objects, serialisers, and internal functions of windows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from varvite.datastream import KeyedStream, SourceFunction
from varvite.datastream.connectors.file_system import FileCompactor
from varvite.datastream.connectors.pulsar import PulsarSource
from varvite.datastream.window import TimeWindowSerializer, TumblingEventTimeWindows
from varvite.java_gateway import get_gateway
from varvite.storage.errors import InvalidRequestError
from varvite.util.java_utils import get_j_env_configuration

HERE = Path(__file__).parent
INNER = frozenset({
    "assign_windows", "get_default_trigger", "get_window_serializer", "merge_windows", "register_next_fire_timestamp",
    "WindowAssignerContext.get_current_processing_time", "WindowAssignerContext.get_runtime_context",
})  # fmt: skip
"""Methods that only PyFlink's own operator calls."""


def entries(name: str) -> Iterator[tuple[str, str]]:
    """Head and rest of each entry; lines that begin with blanks go on."""
    text = (HERE / name).read_text().replace("\n    ", " ")
    return ((head, rest) for head, _, rest in (line.partition(": ") for line in text.splitlines()))


NAMES = {module.rstrip(":"): rest.split() for module, rest in entries("pyflink_names.txt")}
METHODS = {name: re.findall(r"([\w.]+)\(([^)]*)\)", rest) for name, rest in entries("pyflink_methods.txt")}


def is_absent(value: Any) -> bool:
    return type(value).__name__ == "_Absent"


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_of_pyflink_can_be_imported(module: str) -> None:
    ours = import_module(f"varvite.{module}")
    missing = [name for name in NAMES[module] if not hasattr(ours, name)]
    assert missing == []
    assert set(NAMES[module]) <= set(getattr(ours, "__all__", ()))


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_pyflinks_arguments_by_position_and_by_keyword(name: str) -> None:
    module, _, own = name.rpartition(".")
    kind = getattr(import_module(f"varvite.{module}"), own)
    if is_absent(kind):
        return
    for method, parameters in METHODS[name]:
        if method in INNER:
            continue
        found: Any = kind
        for part in method.split("."):
            found = getattr(found, part)
        theirs = [parameter for parameter in parameters.split(",") if parameter]
        signature = inspect.signature(found)
        ours = [str(p).partition(":")[0].partition("=")[0].strip() for p in signature.parameters.values()]
        ours = ours[1:] if ours[:1] == ["self"] else ours
        assert takes(signature, ours, theirs), f"{method}: PyFlink has {theirs}, varvite {ours}"


def takes(signature: inspect.Signature, ours: list[str], theirs: list[str]) -> bool:
    """True if a call that fits PyFlink's parameters fits ours, too."""
    if ours[: len(theirs)] == theirs:
        return True
    named = [name for name in theirs if not name.startswith("*")]
    positional = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values())
    return positional and (set(named) <= set(ours) or theirs == ["*args"])


def test_what_is_not_there_says_so_when_it_is_used_and_not_before() -> None:
    class Rows(SourceFunction): ...

    assert not isinstance(1, PulsarSource)
    for use, remedy in (
        (lambda: PulsarSource.builder, "readStream"),
        (lambda: PulsarSource.builder().set_topics("a"), "readStream"),
        (FileCompactor, "write_stream"),
        (Rows, "from_dataframe"),
        (lambda: get_gateway().jvm, "env.configure"),
        (lambda: get_j_env_configuration(None), "env.configure"),
        (TimeWindowSerializer, "KeyedProcessFunction"),
    ):
        with pytest.raises(InvalidRequestError, match=remedy):
            use()


def test_an_import_of_tables_names_spark_sql() -> None:
    for name in ("varvite.table", "varvite.table.expressions"):
        with pytest.raises(ImportError, match=r"spark\.sql"):
            import_module(name)


def test_the_lists_are_whole() -> None:
    """A list that was cut would make the tests above pass."""
    assert sum(map(len, NAMES.values())) > 500
    assert sum(map(len, METHODS.values())) > 500
    assert ("sum", "position_to_sum") in METHODS["datastream.data_stream.KeyedStream"]
    assert hasattr(KeyedStream, "sum")
    assert TumblingEventTimeWindows.__name__ in NAMES["datastream.window"]
