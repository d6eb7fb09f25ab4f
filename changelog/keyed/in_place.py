"""`InPlaceWatch`: finds out that a function changes a value in place and does not update the state.

Such a change is lost, as Flink's contract says. PyFlink's own cache keeps it for a while, so programs depend on it
without knowing. Only the first reads of a state are watched, then its handles are as fast as before.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.keyed.context import NO_KEY
from varvite.changelog.keyed.overlays.base import MISSING
from varvite.changelog.keyed.overlays.map import MapOverlay
from varvite.changelog.keyed.overlays.value import ValueOverlay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.list import ListOverlay
    from varvite.changelog.types.contract import TypeInformation

WATCHED_READS: Final = 1000
"""Values of one state that are watched, per backend."""
_KEPT_READS: Final = 16
"""Values of one key that are kept until the next key."""


class InPlaceWatch:
    """Watches the values that the handles of one state give out, and compares their encoded bytes at the next key.

    Args:
        overlay: Of the state.
        context: The current key.
        value_type: Type of the values that are given out; a mutable one, whose stored form is bytes.
        stamped: The overlay keeps (stamp, stored form).
    """

    def __init__(
        self,
        overlay: ValueOverlay | MapOverlay | ListOverlay,
        context: KeyContext,
        value_type: TypeInformation,
        *,
        stamped: bool,
    ) -> None:
        self._overlay = overlay
        self._context = context
        self._type = value_type
        self._stamped = stamped
        self._reads_left = WATCHED_READS
        self._key: Any = NO_KEY
        self._key_group = -1
        self._reads: list[tuple[Any, bytes]] = []
        self.has_lost_change = False
        """A value was changed in place, and the state still holds what was read."""

    def attach(self, handle: Any) -> None:
        """Watch what a handle gives out."""
        if self._reads_left:
            handle._thaw = partial(self._thaw, handle)  # noqa: SLF001  every handle has it, and nothing else need know

    def check(self) -> None:
        """Compare what was read with the key that was current; to be called before the overlay is emptied."""
        reads, self._reads = self._reads, []
        if any(self._is_lost(value, stored) for value, stored in reads):
            self.has_lost_change = True
            self._reads_left = 0

    def forget(self) -> None:
        """Forget what was read; to be called when the overlay is emptied."""
        self._reads.clear()

    def _thaw(self, handle: Any, stored: bytes) -> Any:
        context = self._context
        if context.key is not self._key:
            self.check()
            self._key, self._key_group = context.key, context.key_group
        value = self._type.thaw(stored)
        if not self._reads_left:
            handle._thaw = self._type.thaw  # noqa: SLF001  as above
        elif len(self._reads) < _KEPT_READS:
            self._reads_left -= 1
            self._reads.append((value, stored))
        return value

    def _is_lost(self, value: Any, stored: bytes) -> bool:
        freeze = self._type.freeze
        try:
            # Pickles of equal objects may differ, but not if both objects come from the same bytes.
            changed = freeze(value)
            if changed in (stored, freeze(self._type.thaw(stored))):
                return False
        except Exception:  # noqa: BLE001  objects of the user's classes are pickled, and a watch must not end a job
            return False
        present = list(self._present())
        return stored in present and changed not in present

    def _present(self) -> Iterable[Any]:
        """The stored forms that the state of that key holds now."""
        overlay, key_group, key = self._overlay, self._key_group, self._key
        held: Iterable[Any]
        if isinstance(overlay, ValueOverlay):
            cell = overlay.pending[key_group].get(key, MISSING)
            held = (overlay.table.get(key_group, key) if cell is MISSING else cell,)
        elif isinstance(overlay, MapOverlay):
            held = overlay.entries(key_group, key).values()
        else:
            held = overlay.elements(key_group, key)
        return (each[1] for each in held if each is not None) if self._stamped else held
