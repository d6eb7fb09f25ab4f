"""`StateRegistry`: the states of a working store, each at its newest schema, and their numbers in keys.

Registrations since the last `confirm` are pending like the batch that made them, and `revert` forgets them (I4). Else
code that was tried once and rolled back would leave versions behind that the log does not have (I5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from varvite.changelog.schema.history import newer
from varvite.changelog.working_stores.rocksdb.keys import STATE_ID_END
from varvite.changelog.working_stores.rocksdb.metadata import RegisteredState
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from varvite.storage.format.records import StateSchema


class StateRegistry:
    """The states of a store by name.

    Args:
        states: The confirmed ones, in order of registration.
        operator: The operator's uid, for errors.
    """

    def __init__(self, states: tuple[RegisteredState, ...], operator: str) -> None:
        self._operator = operator
        self._by_name = {state.schema.name: state for state in states}
        self._confirmed = states
        self.is_confirmed = True
        """Nothing was registered since the last `confirm`."""

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """In order of registration."""
        return tuple(state.schema for state in self._by_name.values())

    @property
    def states(self) -> tuple[RegisteredState, ...]:
        """In order of registration, which is the order of their ids."""
        return tuple(self._by_name.values())

    @property
    def confirmed_schemas(self) -> tuple[StateSchema, ...]:
        """The states as of the last `confirm`, in order of registration."""
        return tuple(state.schema for state in self._confirmed)

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        """The newest schemas of confirmed states whose TTL is pending."""
        if self.is_confirmed:
            return ()
        newest = ((state.schema, self._by_name[state.schema.name].schema) for state in self._confirmed)
        return tuple(after for before, after in newest if before.ttl != after.ttl)

    def get(self, name: str) -> RegisteredState | None:
        """The state of that name."""
        return self._by_name.get(name)

    def knows(self, schema: StateSchema) -> bool:
        """Is this the newest version of a registered state, so that `register` would change nothing?"""
        state = self._by_name.get(schema.name)
        return state is not None and state.schema == schema

    def register(self, schema: StateSchema) -> RegisteredState:
        """The state of this schema at its newest version, which may be this one; new if its name is.

        Raises `IncompatibleError`, naming the operator, the state and both schemas, if the schema is no version of the
        registered state.
        """
        state = self._by_name.get(schema.name)
        if state is None:
            state = RegisteredState(id=len(self._by_name), schema=schema)
        elif state.schema == schema:
            return state
        else:
            newest = newer(state.schema, schema, self._operator)
            if newest == state.schema:
                return state
            state = RegisteredState(id=state.id, schema=newest)
        if state.id >= STATE_ID_END:
            raise InvariantError(f"more than {STATE_ID_END} states", operator=self._operator)
        self._by_name[schema.name] = state
        self.is_confirmed = False
        return state

    def confirm(self) -> None:
        """Make all registrations permanent."""
        if not self.is_confirmed:
            self._confirmed, self.is_confirmed = self.states, True

    def revert(self) -> bool:
        """Forget the registrations since the last `confirm`; False if there was none."""
        if self.is_confirmed:
            return False
        self._by_name = {state.schema.name: state for state in self._confirmed}
        self.is_confirmed = True
        return True

    def encoded(self) -> bytes:
        """The record of the states in RocksDB."""
        return msgspec.json.encode(self.states)
