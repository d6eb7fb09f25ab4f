"""`StateView`: the state of a backend, pending changes included, by a state's name; for tests and tools.

Reading leaves no trace: no key becomes current, nothing is renewed or removed, and a state without handles is read as
well. Values that have expired at the time of the view are not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.keyed.context import KeyContext
from varvite.changelog.keyed.declaration import overlay_of
from varvite.changelog.keyed.list import ListStateHandle
from varvite.changelog.keyed.map import MapStateHandle
from varvite.changelog.keyed.overlays.base import MISSING
from varvite.changelog.keyed.overlays.list import ListOverlay
from varvite.changelog.keyed.overlays.map import MapOverlay
from varvite.changelog.keyed.overlays.timers import TimerOverlay
from varvite.changelog.keyed.overlays.value import ValueOverlay
from varvite.changelog.keyed.timers import TimeDomain, time_domain_of
from varvite.changelog.keyed.value import ValueStateHandle
from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.columns import TIMERS, namespace_type_of, type_of
from varvite.changelog.types.stamped import unstamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.keyed.overlays.base import Overlay
    from varvite.changelog.segments.batch import BatchTime
    from varvite.storage.format.records import StateSchema


class ViewedTimer(NamedTuple):
    """A timer that is set."""

    time_ms: int
    key: Any
    """The user's form."""
    domain: TimeDomain
    namespace: Any
    """The user's form; None if its timer service has no namespaces."""


class StateView:
    """The state of one (operator, partition) at one moment.

    Args:
        backend: The state; during a batch, or before its changes were prepared for folding.
        now: The time of the batch.
    """

    def __init__(self, backend: KeyedStateBackend, now: BatchTime) -> None:
        self._backend = backend
        self._now = now
        self._context = KeyContext("")

    @property
    def names(self) -> tuple[str, ...]:
        """The states but for timers, in order of registration."""
        return tuple(schema.name for schema in self._backend.schemas if schema.kind != TIMERS)

    def keys(self, name: str) -> Iterator[Any]:
        """The user's form of every key with a value that has not expired."""
        schema = self._schema(name)
        if schema is None:
            return
        overlay = self._overlay(schema)
        read = self._reader(schema, overlay)
        for key_group, key in list(overlay.keys()):
            self._at(key_group, key)
            if read() is not MISSING:
                yield self._thaw_key(key)

    def value(self, name: str, key_group: int, key: Any) -> Any:
        """The state of one key: a value or accumulator, a list, or a dict; None if there is none.

        Args:
            name: Of the state.
            key_group: Of the key.
            key: Its stored form.
        """
        schema = self._schema(name)
        if schema is None:
            return None
        self._at(key_group, key)
        value = self._reader(schema, self._overlay(schema))()
        return None if value is MISSING else value

    def timers(self) -> Iterator[ViewedTimer]:
        """Every timer that is set, of all timer services, in no defined order."""
        for schema in self._backend.schemas:
            if schema.kind != TIMERS:
                continue
            overlay = self._overlay(schema)
            if not isinstance(overlay, TimerOverlay):
                continue
            pending = {timer: is_set for _, timers in overlay.all_pending() for timer, is_set in timers.items()}
            confirmed = map(overlay.table.form.unpack, [packed for _, packed in overlay.table.items()])
            timers = [timer for timer in confirmed if timer not in pending]
            timers += [timer for timer, is_set in pending.items() if is_set]
            namespace_type, domain = namespace_type_of(schema), time_domain_of(schema)
            thaw = None if namespace_type is None else namespace_type.thaw
            for time_ms, key, namespace in timers:
                thawed = namespace if thaw is None or namespace is None else thaw(namespace)
                yield ViewedTimer(time_ms, self._thaw_key(key), domain, thawed)

    def _schema(self, name: str) -> StateSchema | None:
        return next((schema for schema in self._backend.schemas if schema.name == name), None)

    def _at(self, key_group: int, key: Any) -> None:
        self._context.key_group, self._context.key = key_group, key

    def _thaw_key(self, key: Any) -> Any:
        return None if key is None else self._backend.key_type.thaw(key)

    def _overlay(self, schema: StateSchema) -> Overlay[Any]:
        store, overlay = self._backend.store, self._backend.overlay(schema.name)
        if overlay is not None:
            return overlay
        if schema.kind == TIMERS:
            return TimerOverlay(schema, store.timer_table(schema))
        return overlay_of(store, schema, "")

    def _reader(self, schema: StateSchema, overlay: Overlay[Any]) -> Callable[[], Any]:
        """A function that reads the state of the context's key; `MISSING` if there is none."""
        kind, context = type_of(schema.value_type), self._context
        thaw = self._thaw_value(schema)
        if isinstance(overlay, ListOverlay):
            elements: ListStateHandle[Any] = ListStateHandle(overlay, context, kind)
            return lambda: [value for held in elements.get() for value in thaw(held)] or MISSING
        if isinstance(overlay, MapOverlay) and schema.map_key_type is not None:
            entries: MapStateHandle[Any, Any] = MapStateHandle(overlay, context, type_of(schema.map_key_type), kind)
            return lambda: {key: value for key, held in entries.items() for value in thaw(held)} or MISSING
        if isinstance(overlay, ValueOverlay):
            held: ValueStateHandle[Any] = ValueStateHandle(overlay, context, kind)
            return lambda: MISSING if (value := held.value()) is None else next(iter(thaw(value)), MISSING)
        return lambda: MISSING

    def _thaw_value(self, schema: StateSchema) -> Callable[[Any], tuple[Any, ...]]:
        """A function from a handle's value to (the user's value,), or () if it has expired."""
        record = record_of(schema)
        if record is None:
            return lambda held: (held,)
        expired_up_to_ms, inner = record.expired_up_to(self._now), unstamped(type_of(schema.value_type))

        def thaw(held: Any) -> tuple[Any, ...]:
            if held[0] <= expired_up_to_ms:
                return ()
            return (None if held[1] is None else inner.thaw(held[1]),)

        return thaw
