"""A standby: keeps copies of a job's state current on a host, for state workers that may have to start there.

It knows the job only from its storage, like the materializer, and writes only to the directories of local recovery
(`varvite.changelog.restore.local`). A copy is locked while the log is folded into it, briefly in each round, and free
otherwise. A new worker takes a free copy like one that an earlier worker has left, and reads only the end of the log.
While a worker on the host holds a copy of a range, the standby skips the range. If its host has names, the standby
records the versions of its copies in the storage, for the driver and the job's other standbys (`StandbyMember`).

Invariants: I5 (only final commits are folded), I9 (copies are a cache), I10 (one store is open per thread; unused
copies are evicted by age and size).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.tiles import key_range
from varvite.changelog.restore.copies import newest_copy, open_copy
from varvite.changelog.restore.local import CopyRange, LocalCopies, LocalRecovery
from varvite.changelog.restore.restore import ReachedBy, RestoreTarget, catch_up, restore
from varvite.materializer.fold.chain_view import ChainFollower
from varvite.materializer.standby.members import StandbyMember
from varvite.materializer.standby.record import OperatorCopies, runs
from varvite.storage.errors import InvalidRequestError, RetryableError, VarviteError
from varvite.storage.job.record import read_job

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.restore.local import LocalCopy
    from varvite.materializer.fold.chain_view import ChainView
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Commit, Link
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
SWEEP_ROUNDS: Final = 600
"""Rounds from one sweep to the next."""
_BEAT_WAIT_S: Final = 1.0
"""Interval, during a round, of the checks whether a heartbeat is due."""


class StandbyLine(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a round for one range."""

    job: str
    operator: str
    low: int
    high: int
    how: str
    """current, caught-up, restored; held: a worker on this host has it; failed."""
    seq: int | None = None
    """Version of the copy; None if it is not known."""
    newest_seq: int
    """The newest checkpoint."""
    error: str | None = None


@dataclass(frozen=True)
class _Share:
    """One range of an operator."""

    partition: int
    parallelism: int
    operator: str
    key_type: str
    low: int
    high: int

    def key(self, job_id: str) -> CopyRange:
        """Key of its copies."""
        return CopyRange(job_id, self.operator, self.low, self.high)


class _Round(NamedTuple):
    """The job's chain in one round."""

    reader: ChainReader
    final: LineView
    """View of the newest commit that stays on every later line."""
    newest: LineView

    def is_reached(self, version: Link) -> bool:
        """Is a copy at this version current? A worker may have left it at the newest commit."""
        return version.seq >= self.final.base.seq and self.newest.holds(version)


class Standby:
    """Follows one job; for one thread."""

    def __init__(
        self,
        name: str,
        store: ObjectStore,
        policy: LocalRecovery,
        clock: Clock,
        *,
        parallel: int = 2,
        host_names: Sequence[str] = (),
        followers: int | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            name: The job's name.
            store: The job's store.
            policy: Directories and limits of the copies.
            clock: For evictions and heartbeats.
            parallel: Ranges that are brought up to date at the same time.
            host_names: Names of this host, its unique name first; without names no record is written.
            followers: Number of standbys that keep a copy of a partition; None: all of them. Needs names.
        """
        self._name = name
        self._store = store
        self._policy = policy
        self._clock = clock
        self._parallel = parallel
        self._host_names = host_names
        self._followers = followers
        self._reader: ChainReader | None = None
        self._follower: ChainFollower | None = None
        self._member: StandbyMember | None = None
        self._rounds = 0
        self._shares: list[_Share] = []
        self._reached: dict[CopyRange, Link] = {}
        """Versions to which rounds have brought the copies."""
        self._in_use: set[CopyRange] = set()
        """Ranges whose state another process of the host uses."""
        self._is_silent = False
        """Did the last heartbeat fail?"""

    def step(self, stopped: Callable[[], bool] = lambda: False) -> tuple[StandbyLine, ...]:
        """Run one round over all ranges of all operators; `stopped` ends it early.

        The result is empty while the job has no final checkpoint, or the other standbys are not known yet.

        Raises:
            MissingObjectError: there is no such job yet.
            VarviteError: the chain cannot be read, or the directories cannot be used; the next round may succeed.
        """
        if self._reader is None or self._follower is None:
            record = read_job(self._store)
            self._reader = ChainReader(self._store, record.job_id)
            self._follower = ChainFollower(self._reader, record.max_parallelism, self._clock)
            if self._host_names:
                names, followers = self._host_names, self._followers
                self._member = StandbyMember(self._store, record.job_id, names, self._clock, followers)
        reader, member = self._reader, self._member
        chain = self._read(self._follower)
        final = None if chain is None else chain.final
        if final is not None:
            self._shares = _shares(final.commit)
        if chain is None or final is None or (member is not None and not member.knows_its_share):
            self._beat(reader)
            return ()
        round_ = _Round(reader, final.view, chain.newest.view)
        if self._rounds % SWEEP_ROUNDS == 0:
            self._sweep()
        self._rounds += 1
        followed = [s for s in self._shares if member is None or member.follows(s.parallelism, s.partition)]
        for share in set(self._shares).difference(followed):
            self._reached.pop(share.key(reader.job_id), None)
        with ThreadPoolExecutor(self._parallel, "varvite-standby") as pool:
            futures = {share: pool.submit(self._bring_up, share, round_, stopped) for share in followed}
            while wait(futures.values(), _BEAT_WAIT_S).not_done:
                self._beat(reader, {share for share, future in futures.items() if not future.done()})
        lines = [future.result() for future in futures.values()]
        self._beat(reader)
        return tuple(line for line in lines if line is not None)

    def _read(self, follower: ChainFollower) -> ChainView | None:
        """Read the chain; forgets the job if the chain may belong to another job of that name."""
        try:
            chain = follower.read()
        except RetryableError:
            raise
        except VarviteError:
            self._forget()
            raise
        if chain is None and self._shares:
            self._forget()
        return chain

    def _forget(self) -> None:
        """Begin anew in the next round, with the job that then has the name."""
        self._reader = self._follower = self._member = None
        self._shares = []
        self._reached, self._in_use = {}, set()

    def _beat(self, reader: ChainReader, busy: Collection[_Share] = ()) -> None:
        """Write the host's record, if it is due; `busy` are the ranges that this process may be working on."""
        if self._member is None or not self._member.is_due:
            return
        for share in self._shares:
            if share not in busy:
                self._note_use(share, reader)
        try:
            self._member.beat(self._copies(reader.job_id))
        except VarviteError as error:
            if not self._is_silent:
                _log.warning("job %s: the record of this standby cannot be written: %s", self._name, error)
            self._is_silent = True
        else:
            self._is_silent = False

    def _copies(self, job_id: str) -> list[OperatorCopies]:
        """The copies on this host."""
        result: list[OperatorCopies] = []
        for operator, group in groupby(self._shares, key=lambda share: share.operator):
            keys = [share.key(job_id) for share in group]
            reached = [self._reached.get(key) for key in keys]
            copies = runs([None if link is None else link.seq for link in reached])
            in_use = runs([1 if key in self._in_use else None for key in keys])
            used = tuple((first, end) for first, end, _ in in_use)
            result.append(OperatorCopies(operator=operator, parallelism=len(keys), copies=copies, in_use=used))
        return result

    def _note_use(self, share: _Share, reader: ChainReader) -> None:
        key = share.key(reader.job_id)
        self._in_use.discard(key)
        with suppress(InvalidRequestError):  # no directory, no state in it
            if LocalCopies(self._policy.root(share.partition)).is_in_use(key):
                self._in_use.add(key)

    def _bring_up(self, share: _Share, now: _Round, stopped: Callable[[], bool]) -> StandbyLine | None:
        """Bring one range's copy up to date; None if the round was stopped before."""
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
        key = share.key(reader.job_id)
        candidates: list[LocalCopy] = []
        try:
            copies = LocalCopies(self._policy.root(share.partition))
            self._note_use(share, reader)
            if self._reached.get(key) == view.base and copies.directories(key):
                return msgspec.structs.replace(line, how=ReachedBy.CURRENT, seq=view.base.seq)
            candidates = copies.free(key)
            for copy in candidates:
                copy.mark_brief(True)
            if len(copies.directories(key)) > len(candidates):
                self._reached.pop(key, None)
                return line
            how = _bring_up(share, now, candidates or [copies.new(key)])
        except VarviteError as error:
            self._reached.pop(key, None)
            _log.warning("key groups %d to %d of %r: %s", share.low, share.high, share.operator, error)
            return msgspec.structs.replace(line, how="failed", error=str(error))
        finally:
            for copy in candidates:
                copy.release()
        self._reached[key] = view.base
        return msgspec.structs.replace(line, how=how, seq=view.base.seq)

    def _sweep(self) -> None:
        policy = self._policy
        for partition in range(max(1, len(policy.directories))):
            with suppress(InvalidRequestError):  # then the share is reported as failed
                copies = LocalCopies(policy.root(partition))
                for path in copies.sweep(policy.unused_age_max_ms, policy.unused_bytes_max, self._clock.now_ms()):
                    _log.info("evicted the unused local state in %s", path)


def _bring_up(share: _Share, now: _Round, candidates: Sequence[LocalCopy]) -> ReachedBy:
    """Bring the best copy to the round's final commit, remove the others, and release it."""
    target = RestoreTarget(operator=share.operator, key_type=share.key_type, low=share.low, high=share.high)
    newest = newest_copy(candidates, now.newest, lambda directory: open_copy(directory, target, None))
    copy, store, how = newest.copy or candidates[0], newest.state, ReachedBy.CURRENT
    try:
        if store is None or not now.is_reached(store.version):
            how = ReachedBy.CAUGHT_UP
            if store is None or not catch_up(now.final, target, store, now.reader):
                if store is not None:
                    store.close()
                copy.mark_brief(False)
                store, how = restore(now.final, target, now.reader.store, copy.directory), ReachedBy.RESTORED
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
            operator.parallelism,
            operator.uid,
            operator.key_type,
            *key_range(partition, operator.parallelism, commit.max_parallelism),
        )
        for operator in commit.operators
        for partition in range(operator.parallelism)
    ]
