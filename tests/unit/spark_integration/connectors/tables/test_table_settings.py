"""Settings of tables: what becomes of a batch that is executed again, and which sinks of a job go together."""

from __future__ import annotations

import sys
from itertools import combinations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from varvite import DeltaSink, IcebergSink, KafkaSink, PostgresSink
from varvite.changelog.commit.base_decision import RepeatedBatch, WriteKind
from varvite.spark_integration.connectors.several_sinks import SeveralSinks, share_transactions
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.connectors.tables.table_sink import TableNote, TableSettings, table_settings
from varvite.storage.errors import FencedError, InvalidRequestError, LineageError
from varvite.testing.contracts.sink import commit


@pytest.mark.parametrize(
    ("keys", "batch_column", "allow_repeats", "expected"),
    [
        ((), "batch_id", False, RepeatedBatch.REPLACED),
        ("k", "batch_id", False, RepeatedBatch.REFUSED),  # merged rows have no batch
        ("k", "batch_id", True, RepeatedBatch.REPLACED),
        ((), None, False, RepeatedBatch.REFUSED),
        ((), "", False, RepeatedBatch.REFUSED),
        ((), None, True, RepeatedBatch.REFUSED),  # rows would be there twice, so it is written last
    ],
)
def test_the_fate_of_a_repeated_batch(
    keys: str, batch_column: str | None, allow_repeats: bool, expected: RepeatedBatch
) -> None:
    assert table_settings(keys, batch_column, allow_repeats=allow_repeats).repeated_batch is expected


NOTE = TableNote(3, commit(5, 9))


@pytest.mark.parametrize(
    ("settings", "at", "expected"),
    [
        (TableSettings(), commit(6, 10), WriteKind.APPEND),
        (TableSettings(), commit(5, 9), WriteKind.NOTHING),
        (TableSettings(), commit(5, 10), WriteKind.REPLACE),
        (TableSettings(), commit(2, 10), WriteKind.REPLACE),
        (TableSettings(), commit(5, 9, "f" * 32), WriteKind.REPLACE),
        (TableSettings(), commit(6, 8), FencedError),
        (TableSettings(("k",), None), commit(6, 10), WriteKind.APPEND),
        (TableSettings(("k",), None), commit(5, 9), WriteKind.NOTHING),
        (TableSettings(("k",), None), commit(5, 10), LineageError),
        (TableSettings(("k",), None, allow_repeats=True), commit(5, 10), WriteKind.APPEND),
        (TableSettings((), None), commit(4, 10), LineageError),
    ],
)
def test_a_write_is_decided_by_the_note(
    settings: TableSettings, at: object, expected: WriteKind | type[Exception]
) -> None:
    def decide(runs: int) -> WriteKind:
        return settings.decide(NOTE, runs, at)  # type: ignore[arg-type]

    if isinstance(expected, WriteKind):
        assert decide(3) is expected
    else:
        with pytest.raises(expected):
            decide(3)
    for runs in (2, 4):
        with pytest.raises(FencedError):
            decide(runs)


def sinks(**settings: object) -> dict[str, Sink]:
    return {
        "delta": DeltaSink("/t", **settings),  # type: ignore[arg-type]
        "iceberg": IcebergSink("d.t", **settings),  # type: ignore[arg-type]
        "postgres": PostgresSink("", "t", **settings),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize(("first", "second"), list(combinations(("delta", "iceberg", "postgres", "kafka"), 2)))
def test_two_sinks_that_cannot_replace_rows_are_refused(first: str, second: str) -> None:
    """A crash between them would leave a batch in the first that can neither stay nor go."""
    merged: dict[str, Sink] = {**sinks(keys="k"), "kafka": KafkaSink("a:1", "t")}
    with pytest.raises(InvalidRequestError, match="allow_repeats"):
        share_transactions([merged[first], merged[second]])
    several = SeveralSinks([merged[second], *sinks().values()])
    share_transactions(several.sinks)
    assert several.sinks[-1] is merged[second]


@pytest.mark.parametrize(
    ("kind", "library"), [("delta", "deltalake"), ("iceberg", "pyiceberg"), ("postgres", "psycopg")]
)
def test_a_library_that_is_missing_is_an_error_that_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    """For Delta it said that a column had no type."""
    for name in [name for name in sys.modules if name.partition(".")[0] == library] or [library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    sink = sinks()[kind]

    def start() -> None:
        sink.check_columns(StructType([StructField("v", LongType())]))
        sink.prepare("0" * 32)

    with pytest.raises(InvalidRequestError, match=rf"pip install 'varvite\[{kind}\]'"):
        start()
