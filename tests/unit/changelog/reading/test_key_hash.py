"""Key groups that are computed without Spark; `tests/spark/job/test_data_sources.py` compares them with Spark's."""

from __future__ import annotations

import pytest

from varvite.changelog.reading.key_hash import key_group_of_text, xxhash64


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    """Published values."""
    assert xxhash64(data, seed) % (1 << 64) == expected


@pytest.mark.parametrize(
    ("key_type", "text"), [("double", "1.5"), ("long", "01"), ("long", "a"), ("int", str(1 << 31)), ("row<a:int>", "1")]
)
def test_the_key_group_of_other_keys_is_not_known(key_type: str, text: str) -> None:
    assert key_group_of_text(key_type, text, 128) is None


@pytest.mark.parametrize("key_type", ["string", "int", "long"])
def test_text_that_is_no_unicode_is_no_key(key_type: str) -> None:
    """A byte of a command line that is not UTF-8 comes as a lone surrogate."""
    assert key_group_of_text(key_type, "\udcff", 128) is None
