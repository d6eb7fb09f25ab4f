"""What is pending of one state in a batch, squashed to its net effect (I4).

An overlay answers reads before the confirmed table does, and becomes rows of `StateChanges`: by key group, and within
one key by key, in the order in which the batch first changed them. Reads leave no trace in the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.changelog.changes import StateChanges
    from varve.storage.records import StateSchema


class Missing:
    """Type of `MISSING`."""

    __slots__ = ()


MISSING: Final = Missing()
"""Not in the overlay: the table knows."""


class NoKey:
    """Type of `NO_KEY`."""

    __slots__ = ()


NO_KEY: Final = NoKey()
"""No key is current. Not None: null is a key like any other."""


class KeyContext:
    """Whose state the handles of one backend are about; the key is `NO_KEY` outside of a key."""

    __slots__ = ("key", "key_group", "operator")

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.key: Any = NO_KEY
        self.key_group: int = -1

    def no_key(self, state: str) -> InvalidRequestError:
        """The error of an access outside of a key."""
        return InvalidRequestError(
            f"state {state!r} was accessed while no key is current: use it only in the functions that process a key",
            operator=self.operator,
        )

    def refused(self, state: str, error: InvalidRequestError) -> InvalidRequestError:
        """The error of a value that the state's type does not take, with the state's name."""
        return InvalidRequestError(f"state {state!r}: {error.message}", operator=self.operator)


class Overlay(ABC):
    """Base of the overlays of all kinds."""

    __slots__ = ("pending", "read", "read_before", "schema")

    def __init__(self, schema: StateSchema) -> None:
        self.schema = schema
        self.pending: defaultdict[int, dict[Any, Any]] = defaultdict(dict)
        """Key group → key → what is pending; always this object, because handles hold on to it."""
        self.read = False
        """Whether the table was read in this batch."""
        self.read_before = False
        """The same of the batch before."""

    def by_key_group(self) -> list[tuple[int, dict[Any, Any]]]:
        """What is pending, ascending by key group."""
        return sorted(self.pending.items(), key=itemgetter(0))

    @abstractmethod
    def changes(self) -> StateChanges | None:
        """The net effect; None if there is none. The lists are new."""

    def clear(self) -> None:
        """Forget what is pending, at the end of a batch."""
        self.pending.clear()
        self.read_before = self.read
        self.read = False

    @abstractmethod
    def keys(self) -> Iterator[tuple[int, Any]]:
        """(key group, key) of every key that has state, pending included, each once."""

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:  # noqa: B027 - most tables take no hint
        """Pass the hint on to a table that takes it."""
