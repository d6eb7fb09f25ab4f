"""Meaning of rocksdict's errors: read from their text, as it has no classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.changelog.working_stores.rocksdb.database import rocksdb_error
from varvite.storage.errors import (
    DidNotHappenError,
    InvalidRequestError,
    InvariantError,
    LocalDataError,
    MayHaveHappenedError,
)

FULL = "the local disk is full: free space, then try again"


@pytest.mark.parametrize(
    ("text", "expected", "advice"),
    [
        ("IO error: No space left on device: While appending to file: /x/000014.sst", MayHaveHappenedError, FULL),
        ("No space left on device (os error 28)", MayHaveHappenedError, FULL),
        ("Read-only file system (os error 30)", MayHaveHappenedError, "check permissions"),
        ("IO error: Input/output error: While pread", MayHaveHappenedError, "check permissions and health"),
        ("Corruption: block checksum mismatch", LocalDataError, "remove the directory"),
        ("IO error: No such file or directory: /x/CURRENT", LocalDataError, "remove the directory"),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", DidNotHappenError, "open elsewhere"),
        ("Invalid argument: /x: does not exist", InvalidRequestError, "correct the directory"),
        ("something new", InvariantError, "something new"),
    ],
)
def test_each_error_says_what_to_do(text: str, expected: type[Exception], advice: str) -> None:
    found = rocksdb_error(RuntimeError(text), Path("/x"))
    assert type(found) is expected
    assert advice in str(found)
    assert found.context["object_name"] == "/x"
