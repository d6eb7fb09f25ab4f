"""Declares a state: compares the descriptor with the stored schema, and migrates the values if needed.

A migration puts every value of the state again, as changes of the batch of the declaration. So it is in the log, and
neither replay nor the materializer need the user's function (I5). All values of the state of one partition are in
memory until that batch is folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.api.checks import state_error
from varvite.changelog.api.descriptors import schema_of
from varvite.changelog.keyed.overlays.list import ListOverlay
from varvite.changelog.keyed.overlays.map import MapOverlay
from varvite.changelog.keyed.overlays.value import ValueOverlay
from varvite.changelog.schema.history import change
from varvite.changelog.schema.ttl import enabled_settings, record_of, with_ttl
from varvite.changelog.segments.columns import LIST, MAP, VALUE_LIKE, type_of
from varvite.changelog.types.stamped import unstamped
from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.api.descriptors import StateDescriptor
    from varvite.changelog.keyed.overlays.base import Overlay
    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.types.wire import WireType
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import StateSchema


class Declared(NamedTuple):
    """A registered state."""

    schema: StateSchema
    """The schema of its writes."""
    migrated: bool
    """The values must be put again: `rewrite`."""


def declared_schema(
    descriptor: StateDescriptor, stored: StateSchema | None, now: BatchTime | None, operator: str
) -> StateSchema:
    """The schema that a descriptor declares, with its TTL from this batch on; version 0, without history.

    Args:
        descriptor: The user's.
        stored: The stored schema; None for a new state.
        now: The time of the batch; None if none has begun.
        operator: The operator's uid, for errors.
    """
    schema, settings = schema_of(descriptor), enabled_settings(descriptor.get_ttl_config())
    if settings is None and (stored is None or record_of(stored) is None):
        return schema
    if now is None:
        raise InvariantError(f"state {schema.name!r} has TTL, and no batch has begun", operator=operator)
    return with_ttl(schema, stored, settings, now, operator)


def declare(
    store: WorkingStore,
    descriptor: StateDescriptor,
    declared: StateSchema,
    stored: StateSchema | None,
    operator: str,
    *,
    is_opening: bool,
) -> Declared:
    """Register the state of a descriptor with the store.

    Args:
        store: The confirmed state.
        descriptor: The user's.
        declared: Its `declared_schema`.
        stored: The stored schema; None for a new state.
        operator: The operator's uid, for errors.
        is_opening: No key is current. Only then may the type change: so every partition takes the new version, and
            every stored value is migrated, in the same batch. (Switching TTL on is no such change: nothing is migrated,
            and all partitions come to the same version, sooner or later.)

    Raises:
        IncompatibleError: the stored state cannot become the declared one; names the operator, the state, both schemas
            and the ways out.
        InvalidRequestError: the type changes while a key is current; or what `migrate` returned does not fit the type.
    """
    if stored is None:
        store.register(declared)
        return Declared(declared, migrated=False)
    stored_type = unstamped(type_of(stored.value_type))
    migrate = descriptor.migration_from(stored_type)
    decision = change(stored, declared, descriptor.defaults, operator, migrates=migrate is not None)
    if decision.is_new_version and stored_type != descriptor.stored_type and not is_opening:
        raise InvalidRequestError(
            f"the type of state {declared.name!r} has changed: ask for it in open(), before any row is processed",
            operator=operator,
        )
    if decision.migrates and migrate is not None:
        store.register(decision.schema, stored_migration(descriptor, stored_type, migrate, operator))
    else:
        store.register(decision.schema)
    return Declared(decision.schema, migrated=decision.migrates)


def rewrite(overlay: Overlay[Any]) -> None:
    """Put every confirmed value again, as pending."""
    pending = overlay.pending
    if isinstance(overlay, ValueOverlay):
        for key_group, key, value in overlay.table.items():
            pending[key_group][key] = value
    elif isinstance(overlay, MapOverlay):
        for key_group, key, map_key, value in overlay.table.items():
            pending[key_group].setdefault(key, {})[map_key] = value
    elif isinstance(overlay, ListOverlay):
        for key_group, key, elements in overlay.table.items():
            overlay.replace(key_group, key, elements)
    else:
        raise InvariantError(f"values of state {overlay.schema.name!r} cannot be put again")


def overlay_of(store: WorkingStore, schema: StateSchema, operator: str) -> Overlay[Any]:
    """An overlay of a state that is stored. Raises `InvalidRequestError` for timers."""
    if schema.kind in VALUE_LIKE:
        return ValueOverlay(schema, store.value_table(schema))
    if schema.kind == LIST:
        return ListOverlay(schema, store.list_table(schema))
    if schema.kind == MAP:
        return MapOverlay(schema, store.map_table(schema))
    raise _not_removable(schema.name, operator)


def remove_all(overlay: Overlay[Any], operator: str) -> None:
    """Remove every value, as pending. Raises `InvalidRequestError` for timers."""
    if isinstance(overlay, ValueOverlay):
        remove = overlay.remove
    elif isinstance(overlay, MapOverlay | ListOverlay):
        remove = overlay.remove_all
    else:
        raise _not_removable(overlay.schema.name, operator)
    for key_group, key in list(overlay.keys()):
        remove(key_group, key)


def _not_removable(name: str, operator: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name!r} holds timers, which cannot be removed as a state; delete them one by one", operator=operator
    )


def stored_migration(
    descriptor: StateDescriptor, old: WireType, migrate: Callable[[Any], Any], operator: str
) -> Callable[[Any], Any]:
    """The user's function as one between stored forms."""
    thaw, freeze, name = old.thaw, descriptor.stored_type.freeze, descriptor.name

    def convert(stored: Any) -> Any:
        value = migrate(thaw(stored))
        if value is None:
            raise state_error(name, operator, "migrate returned None; it must return a value for every value")
        try:
            return freeze(value)
        except InvalidRequestError as error:
            raise state_error(name, operator, f"migrate: {error.message}") from error

    return convert
