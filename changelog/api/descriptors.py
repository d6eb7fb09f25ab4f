"""State descriptors, with PyFlink's names and signatures: the declaration of a state.

Every type argument takes the same as `varvite.changelog.types.factory.as_type`. Beyond PyFlink, every descriptor
declares the conversion of state that was stored with another type (docs/operate/schema-evolution.md).
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from varvite.changelog.api.functions import (
    AggregateFunction,
    ReduceFunction,
    as_reduce_function,
    check_aggregate_function,
)
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.types.evolution import frozen_defaults
from varvite.changelog.types.factory import TypeLike, Types, as_type
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varvite.changelog.types.wire import WireType


Migration: TypeAlias = "Callable[[Any], Any]"
Defaults: TypeAlias = "Mapping[str, Any]"


class StateDescriptor(ABC):
    """A named state.

    Args:
        name: Unique among the states of an operator; not empty.
        type_info: Type of the whole value.
        migrate: As the argument of `enable_migration`.
        defaults: Path of a field → its value in stored values that lack the field; other fields are None there. A path
            is the field's name, or names from the outside in with points between.

    Raises:
        InvalidRequestError: The name is not a str or is empty, an argument is no type, `migrate` cannot be called, or a
            default does not fit a field.
    """

    kind: ClassVar[str]
    """value, list, map, reducing or aggregating."""

    def __init__(
        self, name: str, type_info: TypeLike, *, migrate: Migration | None = None, defaults: Defaults | None = None
    ) -> None:
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(f"{name!r} is not a name of a state: give a str that is not empty")
        self.name = name
        self.type_info = as_type(type_info)
        self._ttl_config: StateTtlConfig | None = None
        self.defaults = frozen_defaults(self.stored_type, defaults or {})
        """Path of a field → wire form of its default."""
        self._migrations: dict[WireType | None, Migration] = {}
        if migrate is not None:
            self.enable_migration(migrate)

    def get_name(self) -> str:
        """Name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire; a config whose update type is Disabled switches that off.

        Raises `InvalidRequestError` if it is no `StateTtlConfig`.
        """
        if not isinstance(ttl_config, StateTtlConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(
                f"state {self.name!r}: {ttl_config!r} is not a StateTtlConfig; make one with StateTtlConfig.new_builder"
            )
        self._ttl_config = ttl_config

    def get_ttl_config(self) -> StateTtlConfig | None:
        """The config of `enable_time_to_live`."""
        return self._ttl_config

    def enable_migration(self, migrate: Migration, from_type: TypeLike | None = None) -> None:
        """Let a function make the values of this type from stored values of another one.

        It is called for every stored value, in the first batch of a job whose stored type is another, instead of the
        automatic conversion; the result is checked and written to the changelog, so it is needed only once.

        Args:
            migrate: From a value of the old type to a value of this type; never gets or returns None. It must return
                the same for the same value.
            from_type: The old type that it takes; None for any. A function for the exact type comes first. Set it if
                the descriptor keeps the function after the migration.

        Raises:
            InvalidRequestError: `migrate` cannot be called, or `from_type` is no type.
        """
        if not callable(migrate):
            raise InvalidRequestError(f"migrate={migrate!r} of state {self.name!r} is not a function")
        self._migrations[None if from_type is None else as_type(from_type)] = migrate

    def migration_from(self, stored: WireType) -> Migration | None:
        """The function for values that are stored with this type, if there is one."""
        return self._migrations.get(stored) or self._migrations.get(None)

    @property
    def stored_type(self) -> WireType:
        """Type of one cell of the state: of the value, the element, the map value or the accumulator."""
        return self.type_info

    @property
    def map_key_type(self) -> WireType | None:
        """Type of the map keys; None unless the state is a map."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info!r})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a `ValueState`."""

    kind = "value"

    def __init__(
        self,
        name: str,
        value_type_info: TypeLike,
        *,
        migrate: Migration | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        super().__init__(name, value_type_info, migrate=migrate, defaults=defaults)


class ListStateDescriptor(StateDescriptor):
    """Describes a `ListState`; its type is `Types.LIST(elem_type_info)`."""

    kind = "list"

    def __init__(
        self, name: str, elem_type_info: TypeLike, *, migrate: Migration | None = None, defaults: Defaults | None = None
    ) -> None:
        self._element_type = as_type(elem_type_info)
        super().__init__(name, Types.LIST(self._element_type), migrate=migrate, defaults=defaults)

    @property
    def stored_type(self) -> WireType:
        return self._element_type


class MapStateDescriptor(StateDescriptor):
    """Describes a `MapState`; its type is `Types.MAP(key_type_info, value_type_info)`."""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: TypeLike,
        value_type_info: TypeLike,
        *,
        migrate: Migration | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        self._key_type = as_type(key_type_info)
        self._value_type = as_type(value_type_info)
        super().__init__(name, Types.MAP(self._key_type, self._value_type), migrate=migrate, defaults=defaults)

    @property
    def stored_type(self) -> WireType:
        return self._value_type

    @property
    def map_key_type(self) -> WireType:
        return self._key_type


class ReducingStateDescriptor(StateDescriptor):
    """Describes a `ReducingState`.

    Args:
        name: As of `StateDescriptor`.
        reduce_function: A `ReduceFunction` or a callable of two values; else `TypeError`.
        type_info: Type of the values.
        migrate, defaults: As of `StateDescriptor`.
    """

    kind = "reducing"

    def __init__(
        self,
        name: str,
        reduce_function: Any,
        type_info: TypeLike,
        *,
        migrate: Migration | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        super().__init__(name, type_info, migrate=migrate, defaults=defaults)
        self._reduce_function = as_reduce_function(reduce_function)

    def get_reduce_function(self) -> ReduceFunction[Any]:
        """The function; a callable has become a `ReduceFunction`."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an `AggregatingState`.

    Args:
        name: As of `StateDescriptor`.
        agg_function: An `AggregateFunction`; else `TypeError`.
        state_type_info: Type of the accumulator, which is what the state holds.
        migrate, defaults: As of `StateDescriptor`.
    """

    kind = "aggregating"

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction[Any, Any, Any],
        state_type_info: TypeLike,
        *,
        migrate: Migration | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        super().__init__(name, state_type_info, migrate=migrate, defaults=defaults)
        self._agg_function = check_aggregate_function(agg_function)

    def get_agg_function(self) -> AggregateFunction[Any, Any, Any]:
        """The function."""
        return self._agg_function


def schema_of(descriptor: StateDescriptor) -> StateSchema:
    """The schema of the state as a new one, for replay and materialization."""
    key_type = descriptor.map_key_type
    return StateSchema(
        name=descriptor.name,
        kind=descriptor.kind,
        value_type=descriptor.stored_type.type_string(),
        map_key_type=None if key_type is None else key_type.type_string(),
    )
