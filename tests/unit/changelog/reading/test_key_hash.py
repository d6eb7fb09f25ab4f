"""Key groups that are computed without Spark; `tests/spark/job/test_data_sources.py` compares them with Spark's."""

from __future__ import annotations

import sys

import pytest

from varvite.changelog.reading.key_hash import key_group_of_text, xxhash64


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", -7444071767201028348),
        (b"abc", 1423657621850124518),
        (b"Nobody inspects the spammish repetition", 4924730331003623605),
    ],
)
def test_the_hash_is_sparks(data: bytes, expected: int) -> None:
    assert xxhash64(data) == expected


def test_without_the_library_no_key_group_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the reader looks in all of them."""
    assert key_group_of_text("string", "N14228", 128) is not None
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert key_group_of_text("string", "N14228", 128) is None


@pytest.mark.parametrize(
    ("key_type", "text"), [("double", "1.5"), ("long", "01"), ("long", "a"), ("int", str(1 << 31)), ("row<a:int>", "1")]
)
def test_the_key_group_of_other_keys_is_not_known(key_type: str, text: str) -> None:
    assert key_group_of_text(key_type, text, 128) is None


@pytest.mark.parametrize("key_type", ["string", "int", "long"])
def test_text_that_is_no_unicode_is_no_key(key_type: str) -> None:
    """A byte of a command line that is not UTF-8 comes as a lone surrogate."""
    assert key_group_of_text(key_type, "\udcff", 128) is None
