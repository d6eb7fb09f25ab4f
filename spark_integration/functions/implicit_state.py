"""States that an operator keeps by itself, without a descriptor of the user's: those of reduce and of windows.

Where nobody has said what elements or accumulators are, PyFlink pickles them, and so does varvite. In flight that is
nobody's concern. A state that holds them is told of when the job starts, and refused if the job allows none.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import UndeclaredElements

if TYPE_CHECKING:
    from varvite.changelog.types.factory import TypeLike
    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType

_log: Final = logging.getLogger(__name__)
OF_ELEMENTS: Final = "an output_type where its elements are made, or the type_info of from_collection"
OF_ACCUMULATOR: Final = "the accumulator_type of aggregate"


class ImplicitState(NamedTuple):
    """One state."""

    name: str
    kind: WireType
    """Of what it holds."""
    undeclared: str = ""
    """What the user could declare, if the type is the pickled one because nothing was declared; else empty."""


class HasImplicitState(ABC):
    """A function of varvite's own that keeps such states."""

    @abstractmethod
    def implicit_states(self) -> tuple[ImplicitState, ...]:
        """Those that hold what is the user's."""


def state_of_elements(name: str, kind: TypeLike, elements: ElementType | None) -> ImplicitState:
    """A state that holds elements of a stream, or of a stream of which only the type is known."""
    return ImplicitState(name, as_type(kind), OF_ELEMENTS if isinstance(elements, UndeclaredElements) else "")


def state_of_accumulators(name: str, kind: TypeLike | None) -> ImplicitState:
    """A state that holds accumulators; None: nobody has said of which type."""
    if kind is None:
        return ImplicitState(name, as_type(Types.PICKLED_BYTE_ARRAY()), OF_ACCUMULATOR)
    return ImplicitState(name, as_type(kind))
