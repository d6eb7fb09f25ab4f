"""Choosing among the local copies of a range on a host the one to go on with.

State workers that come to a host use it, and the standby that keeps copies up for them.

Invariants: I5, I9 (a copy counts only if its version is a commit of the line; any other is replaced).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.restore.local import LocalCopy
    from varvite.changelog.restore.restore import RestoreTarget
    from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions

_log: Final = logging.getLogger(__name__)


class ChosenCopy(NamedTuple):
    """The copy to go on with, and its state if it has one that can be opened."""

    copy: LocalCopy | None
    state: RocksDBStore | None


def open_copy(directory: Path, target: RestoreTarget, options: RocksDBOptions | None) -> RocksDBStore | None:
    """Open the store in that directory.

    None if there is none that can be used. A store that may be of an attempt that lost is not used either (I4).
    """
    if not directory.exists() or UnconfirmedMark(directory).is_set:
        return None
    try:
        return RocksDBStore.open(directory, target.operator, target.key_type, target.low, target.high, options)
    except VarviteError as error:
        _log.warning("the local state in %s is not used: %s", directory, error)
        return None


def newest_copy(
    candidates: Sequence[LocalCopy], view: LineView, open_state: Callable[[Path], RocksDBStore | None]
) -> ChosenCopy:
    """Choose of the candidates the newest on the view's line, else any; the states of the others are closed."""
    best = ChosenCopy(candidates[0] if candidates else None, None)
    for copy in candidates:
        state = open_state(copy.directory)
        if state is None:
            continue
        if best.state is not None and _rank(best.state, view) >= _rank(state, view):
            state.close()
            continue
        if best.state is not None:
            best.state.close()
        best = ChosenCopy(copy, state)
    return best


def _rank(state: RocksDBStore, view: LineView) -> tuple[bool, int]:
    """A copy on the line is better than one off it, then the newer one."""
    return view.holds(state.version), state.version.seq
