"""Errors of sinks: those of the user's code say so, all others stay what they are."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.common import Row, Types
from varvite.spark_integration.connectors.driver_sinks.element_sinks import PrintSink, printed_text
from varvite.spark_integration.connectors.several_sinks import OutputSinks, SeveralSinks
from varvite.spark_integration.connectors.sink import ForeachBatchSink, Sink, last_committed_of, write_to
from varvite.spark_integration.messages.protocol import LOST_BLOCK
from varvite.spark_integration.plan.operator import elements_of
from varvite.storage.errors import FencedError, UserFunctionError

COMMIT = SinkCommit(7, 9, "token")
ROWS: Any = None
FENCED = FencedError("a newer driver has written")
LOST = RuntimeError(f"{LOST_BLOCK} after the commit")
OF_A_TASK = RuntimeError("x\nvarvite.storage.errors.DidNotHappenError: Spark has lost this output")


class Raising(Sink):
    """A sink of the user's own."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, df: Any, commit: SinkCommit) -> None:
        raise self.error

    def last_committed(self) -> SinkCommit | None:
        raise self.error


def function(error: Exception) -> Sink:
    def write(rows: Any, batch: int) -> None:
        raise error

    return ForeachBatchSink(write)


@pytest.mark.parametrize(
    "around",
    [lambda s: s, lambda s: SeveralSinks((s, s)), lambda s: OutputSinks(((None, s),))],
    ids=["alone", "several", "outputs"],
)
@pytest.mark.parametrize(("sink", "name"), [(function, "the function of foreach_batch"), (Raising, "the sink Raising")])
def test_an_error_of_the_users_code_names_it(around: Any, sink: Any, name: str, monkeypatch: Any) -> None:
    """Found as Spark's exception of a hundred lines, with the user's words at its end."""
    monkeypatch.setattr("varvite.spark_integration.connectors.several_sinks.rows_of_output", lambda rows, _: rows)
    error = ConnectionError("database down\n\tat java.lang.Thread.run")
    with pytest.raises(UserFunctionError) as raised:
        write_to(around(sink(error)), ROWS, COMMIT)
    assert str(raised.value) == f"{name} raised builtins.ConnectionError: database down [batch=7]"
    assert raised.value.__cause__ is error


def test_an_error_of_a_sink_that_is_asked_for_its_last_commit_names_it() -> None:
    error = ConnectionError("database down")
    for sink in Raising(error), SeveralSinks((Raising(error),)):
        with pytest.raises(UserFunctionError, match=r"^the sink Raising raised builtins\.ConnectionError: database"):
            last_committed_of(sink)


@pytest.mark.parametrize("error", [FENCED, LOST, OF_A_TASK], ids=["fenced", "lost", "of a task"])
def test_an_error_that_is_not_of_the_users_code_stays_what_it_is(error: Exception) -> None:
    for sink in function(error), Raising(error):
        with pytest.raises(type(error)) as raised:
            write_to(sink, ROWS, COMMIT)
        assert raised.value is error


ROW = Types.ROW_NAMED(["a", "b", "c"], [Types.STRING(), Types.DOUBLE(), Types.BOOLEAN()])


@pytest.mark.parametrize(
    ("kind", "element", "text"),
    [
        (Types.TUPLE([Types.STRING(), Types.INT(), Types.BOOLEAN()]), ("a", 1, True), "(a,1,true)"),
        (Types.TUPLE([Types.STRING(), Types.DOUBLE()]), (None, 1e10), "(null,1.0E10)"),
        (Types.TUPLE([ROW]), (Row(a="x", b=0.5, c=None),), "(+I[x, 0.5, null])"),
        (ROW, Row(a="x", b=None, c=True), "+I[x,None,True]"),
        (Types.LIST(Types.STRING()), ["a", "b"], "[a, b]"),
        (Types.STRING(), "a", "a"),
        (Types.BOOLEAN(), True, "true"),
        (None, ("a", True), "('a', True)"),
        (Types.PICKLED_BYTE_ARRAY(), ["a"], "['a']"),
        ("a string", Row(a="x"), "Row(a='x')"),
    ],
    ids=str,
)
def test_elements_are_printed_as_pyflink_prints_them(kind: Any, element: Any, text: str) -> None:
    """Those of a declared type were printed as Python has them: `('a', 1)` for PyFlink's `(a,1)`."""
    assert printed_text(elements_of(kind, "uid"))(element) == text


def test_an_error_of_a_sink_of_varvite_stays_what_it_is() -> None:
    broken: Any = None
    with pytest.raises(AttributeError):
        write_to(PrintSink(broken, None), ROWS, COMMIT)
