"""The parts of a range that is folded, each with files of its own; pure.

With more parts less is stored twice when some of the base is rewritten
(`varvite.changelog.working_stores.rocksdb.overlap`), but there are more files. Ranges of one operator are folded at
different times, so an operator of many ranges needs no parts (docs/internals/space.md#parts).
"""

from __future__ import annotations

from typing import Final

PARTS_MAX: Final = 8
"""Most parts of a range: more save hardly any space."""
OPERATOR_PARTS: Final = 32
"""Parts of all ranges of an operator together, about."""
PART_BYTES_MIN: Final = 8 << 10
"""Smallest stored bytes of log per part: smaller files are not worth a request each."""
PART_STATE_BYTES_MIN: Final = 128 << 10
"""Smallest bytes of base and log together per part: a small state is rewritten as a whole."""
PART_RATIO_MIN: Final = 0.0004
"""Smallest stored bytes of log per part and per byte of the whole base."""
BASE_FILES: Final = 40
"""Files of a base that was rewritten as a whole: few of so many span two parts."""
FILE_BYTES_MIN: Final = 128 << 10
"""Smallest size of such a file."""


def fold_parts(key_groups: range, max_parallelism: int, log_bytes: int, base_bytes: int) -> tuple[range, ...]:
    """The parts of a range: 1, 2, 4 or 8 of them, such that fewer parts are unions of more.

    Args:
        key_groups: Key groups of the range.
        max_parallelism: Key groups of the operator.
        log_bytes: Stored bytes of the log to fold.
        base_bytes: Stored bytes of the base.
    """
    most = min(
        PARTS_MAX,
        len(key_groups),
        OPERATOR_PARTS * len(key_groups) // max_parallelism,
        log_bytes // PART_BYTES_MIN,
        (base_bytes + log_bytes) // PART_STATE_BYTES_MIN,
        int(log_bytes / (PART_RATIO_MIN * base_bytes)) if base_bytes else PARTS_MAX,
    )
    count = 1 << max(0, most.bit_length() - 1)
    edges = [key_groups.start + len(key_groups) * i // count for i in range(count + 1)]
    return tuple(range(edges[i], edges[i + 1]) for i in range(count))


def file_bytes(base_bytes: int, log_bytes: int, most: int) -> int:
    """Size of the files that a rewrite makes, for a base and a log of this size; `most` at most.

    The log counts, so that the first fold of a job does not make many small files.
    """
    return min(most, max(FILE_BYTES_MIN, (base_bytes + log_bytes) // BASE_FILES))
