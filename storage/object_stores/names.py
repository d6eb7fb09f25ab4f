"""The check of object names that all stores share.

A name is made of non-empty segments joined by `/`. `.` and `..` are refused, so that no name leaves the store's
root, and so are control characters and `?versionId=`, which some clients strip or cannot list.
"""

from __future__ import annotations

import re
from typing import Final

from varvite.storage.errors import InvalidRequestError

NAME_MAX_BYTES: Final = 900
"""Longest name in UTF-8 bytes: S3 allows 1024 for the path of the root and the name together."""

SEGMENT_MAX_BYTES: Final = 255
"""Longest segment in UTF-8 bytes: the limit of a file name on local filesystems."""

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]|\?versionId=")


def check_name(name: str) -> str:
    """Return `name` if every store can hold an object of this name. Raises `InvalidRequestError`."""
    problem = _problem(name)
    if problem:
        raise InvalidRequestError(f"{name!r} cannot be an object name: {problem}; correct the name", object_name=name)
    return name


def check_prefix(prefix: str) -> str:
    """Return `prefix` if a name can begin with it; "" begins every name. Raises `InvalidRequestError`."""
    # A prefix may end inside a segment, where "." is only the start of a longer one: complete it before the check.
    problem = _problem(prefix + "x")
    if problem and _problem(prefix):
        raise InvalidRequestError(f"{prefix!r} cannot begin an object name: {problem}; correct the prefix")
    return prefix


def _problem(name: str) -> str | None:
    """The reason why no object can have this name, or None."""
    parts = name.split("/")
    rules = (
        ("" in parts, "it is empty, begins or ends with '/', or has '//'"),
        (any(part in (".", "..") for part in parts), "it has a segment '.' or '..'"),
        (_UNSAFE.search(name) is not None, "it has control characters, half a surrogate pair, or '?versionId='"),
        (_size(name) > NAME_MAX_BYTES, f"it is longer than {NAME_MAX_BYTES} bytes"),
        (max(map(_size, parts)) > SEGMENT_MAX_BYTES, f"a segment is longer than {SEGMENT_MAX_BYTES} bytes"),
    )
    return next((problem for applies, problem in rules if applies), None)


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
