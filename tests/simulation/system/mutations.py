"""Broken variants of the protocol: each leaves out one of its rules, and the simulation must find each.

A variant replaces a function of the product while a simulation runs. It may come with options that make what it needs
frequent: long stalls, say, for what goes wrong only after one. It says neither when nor where anything goes wrong.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace as replace_fields

from tests.simulation.system import simulation
from tests.simulation.system.options import Options
from tests.simulation.system.spark import engine as spark
from tests.simulation.system.store import NO_FAULTS, StoreFaults
from varvite.changelog.chain.retention_bounds import RetentionBounds
from varvite.changelog.commit import adopt_decision, base_decision
from varvite.changelog.commit import ownership as chain
from varvite.changelog.commit import run as job_run
from varvite.changelog.commit.base_decision import Execute
from varvite.changelog.commit.ownership import ChainOwner
from varvite.changelog.restore import local as local_copies
from varvite.changelog.restore import restore
from varvite.changelog.restore.local import LocalCopy
from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.retention import collector
from varvite.changelog.retention.collect_decision import NOTHING_KEPT
from varvite.materializer.fold.chain_view import ChainFollower
from varvite.materializer.restore import batch_input
from varvite.spark_integration.driver import query_progress
from varvite.spark_integration.driver.query_progress import QueryProgress
from varvite.spark_integration.worker.state import non_keyed as non_keyed_state
from varvite.spark_integration.worker.state.non_keyed import NonKeyedState
from varvite.spark_integration.worker.state_worker import OperatorState
from varvite.storage.format import layout
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores import prepared_object
from varvite.storage.object_stores.prepared_object import PreparedObject
from varvite.storage.transfer import download
from varvite.storage.transfer.claim import Claim, ClaimRequest
from varvite.storage.transfer.upload import Uploader


@dataclass(frozen=True)
class Mutation:
    """A broken variant."""

    target: Any
    """Module or class."""
    name: str
    """Attribute that is replaced there."""
    broken: Callable[..., Any]
    """Gets the original and then its arguments."""
    found: str
    """Text of the violation, as a regular expression."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the block runs, the product is broken."""
        original = getattr(self.target, self.name)

        def broken(*args: Any, **kwargs: Any) -> Any:
            return self.broken(original, *args, **kwargs)

        with mock.patch.object(self.target, self.name, broken):
            yield

    def options_of(self, options: Options) -> Options:
        """The options of a seed, with what this bug needs."""
        return replace(options, **self.options)


def _put_over_the_slot(_original: Any, self: ChainOwner, commit: Any, body: Any) -> float:
    self._store.put(layout.chain(commit.seq), body)
    self._last_seq = commit.seq
    return self._clock.monotonic_s()


def _collected_with_fences(original: Any, kinds: Any) -> Any:
    return original(dict.fromkeys(kinds, "commit"))


def _without_savepoints(_original: Any, _savepoints: Any) -> Any:
    return NOTHING_KEPT


def _from_the_head(_original: Any, head: Any, _pins: Any) -> RetentionBounds:
    return RetentionBounds(head.seq, head.seq)


def _of_the_newest(original: Any, names: Any, cut: RetentionBounds) -> Any:
    """Those of the newest commit; the one that it was executed on is forgotten."""
    commits = [seq for seq, one in names.items() if one.full_seq is not None]
    return original(names, cut._replace(retained_from=max(commits, default=0)))


def _without_objects(original: Any, entry: Any) -> Any:
    return original(entry)._replace(objects=frozenset())


def _won_without_tag(_original: Any, _self: OperatorState, pending: Any, base: Any, _tag: str) -> bool:
    return pending.finished and pending.task.batch.slot == base.seq


def _folded_at_once(_original: Any, self: OperatorState) -> None:
    pending = self._pending
    if pending is not None and pending.finished and not pending.folded and self._backend is not None:
        self._backend.fold(pending.task.batch.base)
        self._pending = None


def _function_kept(_original: Any, self: OperatorState) -> None:
    self._pending = None


def _caught_up_from_anywhere(_original: Any, view: Any, _target: Any, version: Any) -> bool:
    return 0 < version.seq < view.base.seq


def _newest_is_final(original: Any, self: ChainFollower, **options: Any) -> Any:
    chain_view = original(self, **options)
    return chain_view and chain_view._replace(final=chain_view.newest)


def _adopted_on_any_base(_original: Any, d: Any, replaced: Any, **_: Any) -> bool:
    return d.status == "published" and bool(replaced) and all(d.at.seq > tile.at.seq for tile in replaced)


def _redone_on_itself(_original: Any, _spark: Any, newest: Any, _parent: Any, _sink: Any) -> Execute:
    return Execute(newest)


def _no_files(_original: Any, _files: Any, _batch: Any, _offsets: Any) -> list[str]:
    return []


def _rewound_unseen(_original: Any, _spark: Any, newest: Any, _restore: Any) -> Execute:
    return Execute(newest)


def _without_choice(original: Any, head: Any, *, chosen_ahead: bool = False, **given: Any) -> Any:
    fence = original(head, chosen_ahead=chosen_ahead, **given)
    return fence if chosen_ahead else replace_fields(fence, restore=given["restore"], chosen_ahead=False)


def _nothing_shared(_original: Any, _self: Any, _newest: Any, _kept: Any) -> bool:
    return False


def _copied_without_log(original: Any, fence: Any, source: Any, state: Any, token: str) -> Any:
    return original(fence, source, replace(state, log=()), token)


class _Everything:
    """In the place of a set: holds whatever is asked."""

    def issuperset(self, _other: Any) -> bool:
        return True


def nothing(_original: Any, *_: Any) -> None:
    """Do not do it."""


def _all_rows(original: Any, result: Any) -> Any:
    answer = original(result)
    answer.winners = _Everything()
    return answer


def _every_partition_its_own(_original: Any, images: Any, _parallelism_before: Any, place: Any) -> Any:
    return tuple(images.get(place.partition, ()))


def _never_uploaded(_original: Any, _self: Uploader, _name: str, _data: bytes) -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done


def _refused_is_won(_original: Any, _self: ClaimRequest, _found: bytes) -> Claim:
    return Claim(won=True, body=None)


def _prepared_for_each_attempt(_original: Any, store: Any, name: str, content: Any) -> PreparedObject:
    return PreparedObject(store, name, content)


def _fetched_unverified(_original: Any, store: Any, file: Any) -> None:
    file.path.write_bytes(store.get(file.name))


def _held_by_many(_original: Any, directory: Path, flags: int = 0) -> LocalCopy | None:
    try:
        lock = os.open(directory.with_name(f"{directory.name}.lock"), os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except FileNotFoundError:
        return None
    return local_copies.LocalCopy(directory, lock)


def _log_in_plain(original: Any, self: JobStore, known: Any) -> Any:
    stores = original(self, known)
    return stores._replace(log=stores.log._inner)


def _shared_beside_the_chain(original: Any, self: JobStore, name: str) -> Any:
    return (self._root, layout.name_in_storage(name)) if layout.is_shared(name) else original(self, name)


def _never_open(original: Any, *args: Any, **kwargs: Any) -> Any:
    target = original(*args, **kwargs)
    return None if target is None else dataclasses.replace(target, is_open=False)


def _noted_by_anyone(original: Any, commit: Any, *args: Any, noted: Any = None, **kwargs: Any) -> Any:
    return original(commit, *args, noted=noted and commit.link, **kwargs)


def _change_without_deletions(original: Any, *args: Any) -> Any:
    return dataclasses.replace(original(*args), delete=())


STALLS: Final[dict[str, Any]] = {
    "drivers": 3, "stalls": 0.004, "stall_max_s": 30.0, "step_s": 0.1, "collectors": 2, "steps": 1000
}  # fmt: skip
REDONE: Final[dict[str, Any]] = {"drivers": 3, "executors": 2, "moves": 0.3, "rerun": 0.3, "sink_tells": False}
READS: Final[dict[str, Any]] = {
    "readers": 2, "collectors": 2, "stalls": 0.0, "crashes": 0.0, "step_s": 0.1, "steps": 1000, "faults": NO_FAULTS
}  # fmt: skip
FOLDED: Final[dict[str, Any]] = {"materializers": 1, "changelog": True, "crashes": 0.01, "steps": 1000}
BACK: Final[dict[str, Any]] = {
    "changelog": False, "backend": "rocksdb", "drivers": 3, "executors": 2, "moves": 0.3, "rerun": 0.3, "crashes": 0.02,
    "stalls": 0.0, "keeps_disk": 1.0, "steps": 1000, "restores": 0.0, "clones": 0.0
}  # fmt: skip
"""Killed executors come back with what they had on disk."""
SET_BACK: Final[dict[str, Any]] = {"restores": 0.1, "readers": 2, "changelog": True, "crashes": 0.003, "steps": 1000}
CLONED: Final[dict[str, Any]] = {
    "clones": 0.2, "materializers": 1, "collectors": 2, "changelog": True, "steps": 1500, "crashes": 0.0, "stalls": 0.0
}  # fmt: skip
ON_HOST: Final[dict[str, Any]] = {
    "local_copies": True, "hosts": 1, "executors": 3, "moves": 0.3, "crashes": 0.01, "backend": "rocksdb",
    "real_rocksdb": False
}  # fmt: skip
FLIPS: Final[dict[str, Any]] = {
    "faults": StoreFaults(flips=0.02), "changelog": False, "executors": 2, "moves": 0.3, "steps": 1000
}  # fmt: skip
CACHED: Final[dict[str, Any]] = {"in_chain": True, "drivers": 2, "crashes": 0.003, "steps": 1000, "clones": 0.0}
MUTATIONS: Final[dict[str, tuple[Mutation, ...]]] = {
    "the slot is overwritten": (Mutation(ChainOwner, "append_entry", _put_over_the_slot, "I6", STALLS),),
    "fences are collected": (Mutation(collector, "collect_chain", _collected_with_fences, "I7", STALLS),),
    "savepoints do not count": (Mutation(collector, "kept_by", _without_savepoints, "I7", READS),),
    "the cut is the head": (Mutation(collector, "bounds_of", _from_the_head, "I7", {"collectors": 2}),),
    "the snapshots of the newest commit alone are kept": (
        Mutation(collector, "named_snapshots", _of_the_newest, "I7", REDONE | FOLDED | {"collectors": 2}),
    ),
    "what a retained entry names is collected": (
        Mutation(collector, "names_of", _without_objects, "I7", {"collectors": 2, "inline_bytes_max": 0}),
    ),
    "the tag of a pending attempt is not checked": (
        Mutation(OperatorState, "_has_won", _won_without_tag, "I3|I4", REDONE),
    ),
    "changes are folded before they are confirmed": (
        Mutation(OperatorState, "prepare", _folded_at_once, "I3|I4", REDONE | {"changelog": True}),
    ),
    "the function outlives an attempt that did not win": (
        Mutation(OperatorState, "_drop_pending", _function_kept, "I3|I4", REDONE),
    ),
    "a fold before the commit leaves no mark": (Mutation(UnconfirmedMark, "set", nothing, "I3|I4|I5", BACK),),
    "a local copy off the line is caught up": (
        Mutation(
            restore,
            "can_catch_up",
            _caught_up_from_anywhere,
            "I3|I4|I5",
            REDONE | {"backend": "rocksdb", "changelog": True, "crashes": 0.01, "keeps_disk": 1.0, "steps": 800},
        ),
    ),
    "a snapshot off the line is adopted": (
        Mutation(adopt_decision, "is_adoptable", _adopted_on_any_base, "I", REDONE | FOLDED),
        Mutation(ChainFollower, "read", _newest_is_final, "I"),
    ),
    "a batch is redone on its own result": (Mutation(base_decision, "_redo", _redone_on_itself, "I3", REDONE),),
    "the files behind a counter are not looked at": (
        Mutation(batch_input, "_files_of", _no_files, "I11", {"forges": True, "sink_tells": True}),
    ),
    "a rewind is not seen": (Mutation(base_decision, "_rewound", _rewound_unseen, "I11", {"forges": True}),),
    "the operator's choice is forgotten": (Mutation(chain, "plan_fence", _without_choice, "I11", SET_BACK),),
    "a savepoint is copied without its log": (
        Mutation(job_run, "plan_import", _copied_without_log, "I3|I4|I5", SET_BACK),
    ),
    "a clone lets go of what it shares": (Mutation(collector.Collector, "_shares", _nothing_shared, "I1|I7", CLONED),),
    "rows of another upstream attempt are read": (
        Mutation(simulation, "chained_rows", _all_rows, "I2", REDONE | {"chained": True}),
    ),
    "non-keyed state of an attempt that did not win is kept": (
        Mutation(NonKeyedState, "drop", nothing, "I3|I4", REDONE),
    ),
    "non-keyed state is not redistributed": (
        Mutation(non_keyed_state, "redistributed", _every_partition_its_own, "I5", {"rescales": True}),
    ),
    "partitions read different broadcast rows": (
        Mutation(spark, "check_broadcast", nothing, "I3", {"ruled": True, "disorder": 0.3, "parallelism": 3}),
    ),
    "uploads are not awaited": (Mutation(Uploader, "submit_bytes", _never_uploaded, "I1", {"inline_bytes_max": 0}),),
    "who finds the slot taken does not look by whom": (
        Mutation(ClaimRequest, "_outcome", _refused_is_won, "I", STALLS | {"hang": 0.02, "hedged": True}),
    ),
    "each attempt of an upload is encrypted anew": (
        Mutation(prepared_object, "prepare", _prepared_for_each_attempt, "written again", {"encrypted": True}),
    ),
    "two processes use one local copy": (Mutation(local_copies, "_hold", _held_by_many, "I", ON_HOST),),
    "log data is not encrypted": (
        Mutation(
            JobStore,
            "_open_stores",
            _log_in_plain,
            "is not encrypted",
            {"encrypted": True, "log_elsewhere": True, "inline_bytes_max": 0},
        ),
    ),
    "a clone looks for its source's log beside the chain": (
        Mutation(
            JobStore, "_locate", _shared_beside_the_chain, "I", CLONED | {"log_elsewhere": True, "encrypted": False}
        ),
    ),
    "a batch counts as written once it is durable": (
        Mutation(query_progress, "decide_target", _never_open, "no sink has got", CACHED),
    ),
    "the note of any commit counts": (
        Mutation(query_progress, "decide_target", _noted_by_anyone, "no sink has got", CACHED | {"sink_tells": False}),
    ),
    "the location is left as it is": (Mutation(QueryProgress, "settle", nothing, "I11", CACHED),),
    "batches that the chain does not have stay in the location": (
        Mutation(
            query_progress,
            "change_of",
            _change_without_deletions,
            "I11",
            CACHED | {"restores": 0.1, "private_location": False},
        ),
    ),
    "fetched files are not verified": (Mutation(download, "_fetch_whole", _fetched_unverified, "I", FLIPS),),
}
"""Missing rule → the variant."""
