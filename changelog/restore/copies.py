"""Bringing a local copy to a commit: from the newest one on the host, from the log, or from the tiles.

Used by state workers that come to a host, and by the standby that keeps copies up for them.

Invariants: I5, I9 (a copy counts only if its version is a commit of the line; any other is replaced).
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.restore.files import DOWNLOADS
from varvite.changelog.restore.restore import catch_up, restore_store, stages_to
from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import MissingObjectError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView
    from varvite.changelog.restore.local import LocalCopy
    from varvite.changelog.restore.restore import RestoreTarget
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
    from varvite.storage.transfer.download import DownloadPolicy

_log: Final = logging.getLogger(__name__)


class FoundCopy(NamedTuple):
    """The copy to go on with, and its store if it has one that can be opened."""

    copy: LocalCopy | None
    store: RocksDBStore | None


def open_copy(directory: Path, target: RestoreTarget, options: RocksDBOptions | None) -> RocksDBStore | None:
    """The store in that directory; None if there is none of use (I4: nor if it may be of an attempt that lost)."""
    if not directory.exists() or UnconfirmedMark(directory).is_set:
        return None
    try:
        return RocksDBStore.open(directory, target.operator, target.key_type, target.low, target.high, options)
    except VarviteError as error:
        _log.warning("the local state in %s is not used: %s", directory, error)
        return None


def newest_copy(
    candidates: Sequence[LocalCopy], view: LineView, opened: Callable[[Path], RocksDBStore | None]
) -> FoundCopy:
    """Of the candidates the newest on the view's line, else any; the stores of the others are closed."""
    best = FoundCopy(candidates[0] if candidates else None, None)
    for copy in candidates:
        store = opened(copy.directory)
        if store is None:
            continue
        if best.store is not None and _rank(best.store, view) >= _rank(store, view):
            store.close()
            continue
        if best.store is not None:
            best.store.close()
        best = FoundCopy(copy, store)
    return best


def caught_up(
    view: LineView,
    target: RestoreTarget,
    reader: ChainReader,
    state: WorkingStore,
    downloads: DownloadPolicy = DOWNLOADS,
) -> bool:
    """Bring an older store of the line to the view's commit; False if the log does not reach so far back.

    Raises `VarviteError` if the log cannot be read. After that, and after False, the store must not be used any more.
    """
    stages = stages_to(view, target, state.version, reader)
    try:
        for stage in stages:
            catch_up(stage, target, reader.store, state, downloads=downloads)
    except MissingObjectError as error:
        if len(stages) == 1:
            raise
        # Below the newest tile the log may be collected at any time.
        _log.info("the local state cannot catch up and is restored: %s", error)
        return False
    return bool(stages)


def restore_copy(
    view: LineView,
    target: RestoreTarget,
    reader: ChainReader,
    directory: Path,
    options: RocksDBOptions | None = None,
    *,
    downloads: DownloadPolicy = DOWNLOADS,
    reuse: Sequence[Path] = (),
) -> RocksDBStore:
    """A store at the view's commit in `directory`; what is there is replaced.

    Files of the tiles that are in it, or in the directories to `reuse`, are not fetched again. Raises as
    `restore_store`.
    """
    scratch, stale = (directory.with_name(f"{directory.name}.{what}") for what in ("restore", "stale"))
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(stale, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    if directory.exists():
        directory.rename(stale)
    UnconfirmedMark(directory).clear()
    try:
        return restore_store(
            view, target, reader.store, directory, scratch, options, downloads=downloads, reuse=(stale, *reuse)
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)


def _rank(store: RocksDBStore, view: LineView) -> tuple[bool, int]:
    """Which copy is better: one on the line, then the newer one."""
    return view.holds(store.version), store.version.seq
