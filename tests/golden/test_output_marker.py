"""The bytes that sinks leave beside their output are read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.files.file_sink import (
    OutputCommit,
    OutputOwner,
    attempt_directory,
    commit_name,
    decode_marker,
    encode_marker,
    writer_name,
)
from varvite.spark_integration.connectors.kafka.commit_topic import decode_commit, encode_commit
from varvite.spark_integration.connectors.tables import delta_sink, iceberg_sink
from varvite.spark_integration.connectors.tables.table_sink import TableNote
from varvite.storage.errors import CorruptDataError

DATA = Path(__file__).parent / "data"
GOLDEN = {
    "output-owner-v1": OutputOwner(job_id="0123456789abcdef" * 2, query_id="b3057eb7-5c23-41f4-8d80-d70e7aed3ead"),
    "output-commit-v1": OutputCommit(job_id="0123456789abcdef" * 2, batch=7, seq=12),
    "output-commit-token-v1": OutputCommit(
        job_id="0123456789abcdef" * 2, batch=7, seq=12, token="fedcba9876543210" * 2
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_markers_are_read_and_written_as_ever(name: str) -> None:
    data = (DATA / name).read_bytes()
    assert decode_marker(data, type(GOLDEN[name]), name) == GOLDEN[name]
    assert encode_marker(GOLDEN[name]) == data


@pytest.mark.parametrize("name", GOLDEN)
def test_a_changed_byte_is_noticed(name: str) -> None:
    data = bytearray((DATA / name).read_bytes())
    for i in range(len(data)):
        data[i] ^= 1
        with pytest.raises(CorruptDataError):
            decode_marker(bytes(data), type(GOLDEN[name]), name)
        data[i] ^= 1


def test_one_kind_of_marker_is_not_taken_for_the_other() -> None:
    with pytest.raises(CorruptDataError):
        decode_marker((DATA / "output-owner-v1").read_bytes(), OutputCommit, "x")


def test_commit_names_carry_their_seq() -> None:
    commit = SinkCommit(7, 12, "0123456789abcdef" * 2)
    number = "00000000000000000012-" + commit.token
    assert commit_name(commit) == f"_varvite/commit-{number}"
    assert writer_name(commit) == f"_varvite/writer-{number}"
    assert attempt_directory(commit) == f"batch_id=7/attempt-{number}"


KAFKA_COMMIT = SinkCommit(7, 12, "fedcba9876543210" * 2)


def test_the_golden_commit_in_kafka_is_read_and_written_as_ever() -> None:
    data = (DATA / "kafka-commit-v1").read_bytes()
    assert decode_commit(data, "x") == KAFKA_COMMIT
    assert encode_commit(KAFKA_COMMIT) == data
    for i in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_commit(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "x")


COMMIT = SinkCommit(7, 12, "fedcba9876543210" * 2)


def test_commits_in_iceberg_are_read_and_written_as_ever() -> None:
    text = '[3,[7,12,"fedcba9876543210fedcba9876543210"]]'
    assert iceberg_sink.encoded(TableNote(3, COMMIT)) == text
    assert iceberg_sink.decoded(text) == TableNote(3, COMMIT)
    assert iceberg_sink.decoded("[1,null]") == TableNote(1)


def test_commits_in_delta_are_read_and_written_as_ever(tmp_path: Path) -> None:
    versions = {"runs": 3, "batch": 7, "seq": 12, "token-high": -81985529216486896, "token-low": -81985529216486896}
    assert delta_sink.versions_of(3, COMMIT) == versions
    assert delta_sink.note_of(versions.get) == TableNote(3, COMMIT)
    assert delta_sink.note_of({"runs": 1}.get) == TableNote(1)
