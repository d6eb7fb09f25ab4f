"""A standby: keeps copies of a job's state current on a host, for state workers that may have to begin there.

It knows the job only from its storage, like the materializer, and writes only to the directories of local recovery
(`varve.changelog.local_copies`). A copy is held while the log is folded into it, a moment in each round, and is free in
between: a worker that comes takes it like one that an earlier worker has left, and reads just the end of the log. While
a worker on the host holds a copy of a range, the standby leaves the range alone.

Invariants: I5 (only what no later line can give up is folded), I9 (copies are a cache), I10 (one store is open per
thread; what nobody uses is swept by age and size).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varve.changelog.copy_restore import caught_up, newest_copy, open_copy, restore_copy
from varve.changelog.local_copies import CopyRange, LocalCopies, LocalRecovery
from varve.changelog.restore import RestoreTarget
from varve.materializer.chain_follower import ChainFollower
from varve.storage.chain_reader import ChainReader
from varve.storage.errors import VarveError
from varve.storage.job import read_job
from varve.storage.tile_cover import key_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.changelog.local_copies import LocalCopy
    from varve.storage.clock import Clock
    from varve.storage.line_view import LineView
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import Commit, Link

_log: Final = logging.getLogger(__name__)
SWEEP_ROUNDS: Final = 600
"""Rounds from one sweep to the next."""


class StandbyLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a round did with one range."""

    job: str
    operator: str
    low: int
    high: int
    how: str
    """current, caught-up, restored; held: a worker on this host has it; failed."""
    seq: int | None = None
    """Where the copy is now; None if that is not known."""
    newest_seq: int
    """The newest checkpoint."""
    error: str | None = None


@dataclass(frozen=True)
class _Share:
    """One range of an operator."""

    partition: int
    operator: str
    key_type: str
    low: int
    high: int


class _Round(NamedTuple):
    """What the chain says in one round."""

    reader: ChainReader
    final: LineView
    """Of the newest commit that stays on every later line."""
    newest: LineView

    def is_reached(self, version: Link) -> bool:
        """Whether a copy at that version need not be brought up: a worker may have left it at the newest commit."""
        return version.seq >= self.final.base.seq and self.newest.holds(version)


class Standby:
    """Follows one job; for one thread."""

    def __init__(
        self, name: str, store: ObjectStore, policy: LocalRecovery, clock: Clock, *, parallel: int = 2
    ) -> None:
        """`store` is the job's; `parallel` ranges are brought up at the same time."""
        self._name = name
        self._store = store
        self._policy = policy
        self._clock = clock
        self._parallel = parallel
        self._reader: ChainReader | None = None
        self._follower: ChainFollower | None = None
        self._rounds = 0
        self._reached: dict[CopyRange, Link] = {}
        """Where a round has brought the copies of these ranges."""

    def step(self, stopped: Callable[[], bool] = lambda: False) -> tuple[StandbyLine, ...]:
        """One round over all ranges of all operators; `stopped` ends it early. Nothing yet: the job has no checkpoint.

        Raises:
            MissingObjectError: there is no such job yet.
            VarveError: the chain cannot be read, or the directories cannot be used; another round may do.
        """
        if self._reader is None or self._follower is None:
            record = read_job(self._store)
            self._reader = ChainReader(self._store, record.job_id)
            self._follower = ChainFollower(self._reader, record.max_parallelism)
        chain = self._follower.read()
        if chain is None or chain.final is None:
            return ()
        round_ = _Round(self._reader, chain.final.view, chain.newest.view)
        if self._rounds % SWEEP_ROUNDS == 0:
            self._sweep()
        self._rounds += 1
        with ThreadPoolExecutor(self._parallel, "varve-standby") as pool:
            rounds = [pool.submit(self._bring_up, share, round_, stopped) for share in _shares(chain.final.commit)]
            lines = [one.result() for one in rounds]
        return tuple(line for line in lines if line is not None)

    def _bring_up(self, share: _Share, now: _Round, stopped: Callable[[], bool]) -> StandbyLine | None:
        """One range; None if it was not begun."""
        if stopped():
            return None
        reader, view = now.reader, now.final
        line = StandbyLine(
            job=self._name,
            operator=share.operator,
            low=share.low,
            high=share.high,
            how="held",
            newest_seq=now.newest.base.seq,
        )
        key = CopyRange(reader.job_id, share.operator, share.low, share.high)
        copies = LocalCopies(self._policy.root(share.partition))
        if self._reached.get(key) == view.base and copies.directories(key):
            return msgspec.structs.replace(line, how="current", seq=view.base.seq)
        candidates: list[LocalCopy] = copies.free(key)
        for copy in candidates:
            copy.is_brief(True)
        try:
            if len(copies.directories(key)) > len(candidates):
                return line
            how = _bring_up(share, now, candidates or [copies.new(key)])
        except VarveError as error:
            _log.warning("key groups %d to %d of %s: %s", share.low, share.high, share.operator, error)
            return msgspec.structs.replace(line, how="failed", error=str(error))
        finally:
            for copy in candidates:
                copy.release()
        self._reached[key] = view.base
        return msgspec.structs.replace(line, how=how, seq=view.base.seq)

    def _sweep(self) -> None:
        policy = self._policy
        for root in {policy.root(partition) for partition in range(max(1, len(policy.directories)))}:
            for path in LocalCopies(root).sweep(
                policy.unused_age_max_ms, policy.unused_bytes_max, self._clock.now_ms()
            ):
                _log.info("removed the local state in %s, which nobody uses", path)


def _bring_up(share: _Share, now: _Round, candidates: Sequence[LocalCopy]) -> str:
    """Bring the best copy to the round's final commit, remove the others, and give it up; answers how."""
    target = RestoreTarget(operator=share.operator, key_type=share.key_type, low=share.low, high=share.high)
    found = newest_copy(candidates, now.newest, lambda directory: open_copy(directory, target, None))
    copy, store, how = found.copy or candidates[0], found.store, "current"
    try:
        if store is None or not now.is_reached(store.version):
            how = "caught-up"
            if store is None or not caught_up(now.final, target, now.reader, store):
                if store is not None:
                    store.close()
                copy.is_brief(False)
                store, how = restore_copy(now.final, target, now.reader, copy.directory), "restored"
    except BaseException:
        if store is not None:
            store.close()
        copy.discard()
        raise
    else:
        store.close()
        for other in candidates:
            if other is not copy:
                other.remove()
        return how
    finally:
        copy.release()


def _shares(commit: Commit) -> list[_Share]:
    """The ranges of the partitions of all operators."""
    return [
        _Share(
            partition,
            operator.uid,
            operator.key_type,
            *key_range(partition, operator.parallelism, commit.max_parallelism),
        )
        for operator in commit.operators
        for partition in range(operator.parallelism)
    ]
