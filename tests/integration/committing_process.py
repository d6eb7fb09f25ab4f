"""A driver process without Spark: takes a job over and commits batches until it is fenced off.

`python -m tests.integration.committing_process <storage> <sink> <batches>`: writes a line "epoch batch seq" to the sink
file after each commit, as a user's sink would. Exit code 3: fenced.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult, entry_time
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import FencedError
from varvite.storage.format.records import OperatorLayout
from varvite.storage.object_stores.local.store import LocalStore

FENCED = 3
PAUSE_S = 0.02


def source(batch: int) -> str:
    """Hash of the offsets of a batch, which never change."""
    return hashlib.sha256(f"offsets {batch}".encode()).hexdigest()


def main(storage: str, sink: Path, batches: int) -> int:
    """Take over, then commit."""
    clock, tokens = SystemClock(), SystemTokens()
    run = JobRun.open(LocalStore(Path(storage)), "job", 8, CommitPolicy(full_every=4), clock, tokens)
    run.take_over()
    written = [line.split() for line in sink.read_text().splitlines()] if sink.exists() else []
    batch = int(written[-1][1]) + 1 if written else 0
    run.choose_base(SparkProgress(batch, "query", source(batch), source(batch - 1) if batch else None), None)
    layout = OperatorLayout(uid="op", parallelism=1, key_type="long", changelog=True, backend="hashmap")
    try:
        for number in range(batch, batch + batches):
            result = PartitionResult(operator="op", partition=0, low=0, high=8, tag=tokens.token())
            now_ms = entry_time(run.state.base, clock.now_ms())
            facts = BatchFacts(
                batch=number, query_id="query", source_hash=source(number), time_ms=now_ms, watermark_ms=None,
                operators=(layout,), results=(result,),
            )  # fmt: skip
            commit = run.commit(facts, tokens.token()).commit
            run.still_owner()
            with sink.open("a") as lines:
                lines.write(f"{run.fence.epoch} {number} {commit.seq}\n")
            run.still_owner()
            run.batch_done()
            time.sleep(PAUSE_S)
    except FencedError:
        return FENCED
    finally:
        run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
