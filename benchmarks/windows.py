"""Log bytes of sliding windows per checkpoint, against the state that changed. `python -m benchmarks.windows`.

The workload on which Flink's changelog grows 45-fold: many overlapping windows, each of which has its own copy of the
elements there. Here an element is logged once, whatever the number of windows that it is in. *Changed* is what a batch
adds to the state, each thing once: key, time (8 bytes) and value of each element or accumulator. The log is the
batch's segment as it would be uploaded: these rows, the removal of what has ended, and timers.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.window_job import Element, WindowJob, window_operator
from varvite.changelog.segments.segment import encode_segment
from varvite.changelog.types.factory import Types
from varvite.spark_integration.operators.windows.assigners import SlidingEventTimeWindows
from varvite.spark_integration.operators.windows.contents import ListedContents, ReducedContents

if TYPE_CHECKING:
    from varvite.spark_integration.operators.windows.contents import ContentsPlan

KEYS, ROWS, MEASURED = 50, 500, 12
BATCH_MS, SLIDE_MS = 1_000, 1_000
PAYLOAD = 100
"""Bytes of an element; random, so that they do not compress away."""


def batches(rng: random.Random, count: int) -> list[list[Element]]:
    """Elements of a second each, in order of time."""
    made: list[list[Element]] = []
    for number in range(count):
        times = sorted(rng.randrange(BATCH_MS) + number * BATCH_MS for _ in range(ROWS))
        made.append([Element(f"key-{rng.randrange(KEYS)}", rng.randbytes(PAYLOAD), t) for t in times])
    return made


def log_bytes(contents: ContentsPlan, windows: int, *, numbers: bool) -> tuple[float, float]:
    """(log, state changed) in bytes per batch once windows come and go; medians."""
    with tempfile.TemporaryDirectory() as directory:
        job = KeyedJob("hashmap", "off", Path(directory))
        operator = window_operator(SlidingEventTimeWindows.of(windows * SLIDE_MS, SLIDE_MS), contents)
        runner = WindowJob(job, operator)
        logged: list[int] = []
        changed: list[int] = []
        watermark_ms: int | None = None
        for elements in batches(random.Random(1), windows + 3 + MEASURED):
            given = [Element(e.key, len(e.value), e.time_ms) for e in elements] if numbers else elements
            runner.batch(given, watermark_ms=watermark_ms)
            segment = encode_segment(job._header(job._seq + 1), job.backend.changes())  # noqa: SLF001
            logged.append(len(segment))
            panes = [Element(*name, 0) for name in {(e.key, (e.time_ms or 0) // SLIDE_MS) for e in given}]
            changed.append(sum(len(e.key) + 8 + (8 if numbers else PAYLOAD) for e in (panes if numbers else given)))
            job.backend.fold(_version(job))
            watermark_ms = max(e.time_ms or 0 for e in elements)
        job.close()
    return statistics.median(logged[-MEASURED:]), statistics.median(changed[-MEASURED:])


def _version(job: KeyedJob) -> Any:
    from varvite.storage.format.records import Link

    job._seq += 1  # noqa: SLF001
    return Link(job._seq, f"token-{job._seq}")  # noqa: SLF001


def main() -> None:
    """Print the table."""
    print(f"{'contents':10} {'windows':>8} {'log':>10} {'changed':>10}  {'log / changed':>14}")
    kinds: list[tuple[str, ContentsPlan, bool]] = [
        ("elements", ListedContents(Types.BINARY()), False),
        ("reduce", ReducedContents(lambda a, b: a + b, Types.LONG()), True),
    ]
    for name, contents, numbers in kinds:
        for windows in (1, 5, 15, 45):
            logged, changed = log_bytes(contents, windows, numbers=numbers)
            print(f"{name:10} {windows:8} {logged:10.0f} {changed:10.0f} {logged / changed:14.2f}")


if __name__ == "__main__":
    main()
