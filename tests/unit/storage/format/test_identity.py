"""An object that was copied or moved is whole, and is refused where it was found all the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.golden.writers.storage import ENTRIES, RECORDS
from varvite.storage.errors import CorruptDataError, LineageError
from varvite.storage.format import layout
from varvite.storage.format.identity import check_name, check_record
from varvite.storage.format.records import Commit, Fence, JobRecord, Pin, Savepoint, SnapshotDescriptor

RECORDED: dict[str, Any] = {
    **{file: entry for file, (entry, _) in ENTRIES.items()},
    **{file: record for file, record in RECORDS.items() if not isinstance(record, JobRecord)},
}


def home(record: Any) -> str:
    """The name under which a record belongs."""
    match record:
        case Fence() | Commit():
            return layout.chain(record.seq)
        case SnapshotDescriptor():
            return layout.snapshot(record.operator, record.low, record.high, record.number)
        case Pin():
            return layout.pin(record.token)
        case Savepoint():
            return layout.savepoint(record.name)
    raise AssertionError(record)


def job_of(record: Any) -> str | None:
    return record.commit.job_id if isinstance(record, Savepoint) else getattr(record, "job_id", None)


ELSEWHERE = (
    layout.chain(77), layout.snapshot("another", 0, 64, 3), layout.snapshot("flights", 64, 128, 77),
    layout.pin("f" * 32), layout.savepoint("another"),
)  # fmt: skip


@pytest.mark.parametrize("file", RECORDED)
def test_a_record_is_accepted_at_its_own_place_and_at_no_other(file: str) -> None:
    record = RECORDED[file]
    check_record(record, home(record))
    check_record(record, home(record), job_of(record) or "any")
    for name in ELSEWHERE:
        with pytest.raises(CorruptDataError, match="copied or moved") as caught:
            check_record(record, name)
        assert caught.value.context["object_name"] == name


@pytest.mark.parametrize("file", [file for file, record in RECORDED.items() if job_of(record)])
def test_a_record_of_another_job_is_refused(file: str) -> None:
    record = RECORDED[file]
    kind = LineageError if isinstance(record, (Fence, Commit)) else CorruptDataError
    with pytest.raises(kind, match="belongs to job id"):
        check_record(record, home(record), "another")


@pytest.mark.parametrize("parts", [(layout.chain, -1), (layout.chain, 10**30), (layout.savepoint, "\ud800")])
def test_a_name_that_no_object_can_have_is_damage(parts: tuple[Any, Any]) -> None:
    with pytest.raises(CorruptDataError, match="no object can be"):
        check_name("some/object", *parts)


def test_a_savepoint_whose_files_are_the_jobs_is_refused() -> None:
    """They are deleted with it: entries of the chain, say."""
    savepoint = RECORDED["savepoint-canonical.bin"]
    file = msgspec.structs.replace(savepoint.files[0], name=layout.chain(5))
    with pytest.raises(CorruptDataError, match=layout.chain(5)):
        check_record(msgspec.structs.replace(savepoint, files=(file,)), home(savepoint))
