"""`ImplicitState`: state that built-in functions (reduce, windows) declare, without a descriptor of the user's.

Elements and accumulators without a declared type are pickled, as in PyFlink. For elements in flight that has no
consequence. For state it has: when the job starts, a warning names it, or the job is refused if it allows none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import UndeclaredElements

if TYPE_CHECKING:
    from varvite.changelog.types.factory import TypeLike
    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType

OF_ELEMENTS: Final = "an output_type where its elements are made, or the type_info of from_collection"
OF_ACCUMULATOR: Final = "the accumulator_type of aggregate"


class ImplicitState(NamedTuple):
    """One such state."""

    name: str
    kind: WireType
    """Type of its values."""
    undeclared: str = ""
    """The declaration that the user can add, if values are pickled because there is none; else empty."""


class HasImplicitState(ABC):
    """A built-in function that declares such states."""

    @abstractmethod
    def implicit_states(self) -> tuple[ImplicitState, ...]:
        """The states that hold values of the user's."""


def state_of_elements(name: str, kind: TypeLike, elements: ElementType | None) -> ImplicitState:
    """A state that holds elements of a stream; without `elements` only their type is known."""
    return ImplicitState(name, as_type(kind), OF_ELEMENTS if isinstance(elements, UndeclaredElements) else "")


def state_of_accumulators(name: str, kind: TypeLike | None) -> ImplicitState:
    """A state that holds accumulators; None: their type is not declared."""
    if kind is None:
        return ImplicitState(name, as_type(Types.PICKLED_BYTE_ARRAY()), OF_ACCUMULATOR)
    return ImplicitState(name, as_type(kind))
