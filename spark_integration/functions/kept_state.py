"""States that an operator keeps by itself, without a descriptor of the user's: those of reduce and of windows.

Where nobody has said what elements or accumulators are, PyFlink pickles them, and so does varve. In flight that is
nobody's concern. A state that holds them is told of when the job starts, and refused if the job allows none.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from varve.changelog.schema.pickled import OPTION, is_generic
from varve.changelog.types.factory import Types, as_type
from varve.spark_integration.elements.types import UndeclaredElements
from varve.spark_integration.plan.transformations import CollectionSource
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.changelog.types.factory import TypeLike
    from varve.changelog.types.wire import WireType
    from varve.spark_integration.elements.types import ElementType
    from varve.spark_integration.plan.operator import OperatorPlan
    from varve.spark_integration.plan.transformations import DataFrameSource

_log: Final = logging.getLogger(__name__)
OF_ELEMENTS: Final = "an output_type where its elements are made, or the type_info of from_collection"
OF_ACCUMULATOR: Final = "the accumulator_type of aggregate"


class KeptState(NamedTuple):
    """One state."""

    name: str
    kind: WireType
    """Of what it holds."""
    undeclared: str = ""
    """What the user could declare, if the type is the pickled one because nothing was declared; else empty."""


class KeepsState(ABC):
    """A function of varve's own that keeps such states."""

    @abstractmethod
    def kept_states(self) -> tuple[KeptState, ...]:
        """Those that hold what is the user's."""


def state_of_elements(name: str, kind: TypeLike, elements: ElementType | None) -> KeptState:
    """A state that holds elements of a stream, or of a stream of which only the type is known."""
    return KeptState(name, as_type(kind), OF_ELEMENTS if isinstance(elements, UndeclaredElements) else "")


def state_of_accumulators(name: str, kind: TypeLike | None) -> KeptState:
    """A state that holds accumulators; None: nobody has said of which type."""
    if kind is None:
        return KeptState(name, as_type(Types.PICKLED_BYTE_ARRAY()), OF_ACCUMULATOR)
    return KeptState(name, as_type(kind))


def check_generic_types(
    job: str,
    operators: Sequence[OperatorPlan],
    sources: Sequence[DataFrameSource | CollectionSource],
    *,
    allowed: bool,
) -> None:
    """Warn of states that hold pickled objects although nobody chose that, or refuse all generic types.

    Args:
        job: Its name.
        operators: All of the job.
        sources: What they read. A collection is stored until it is processed.
        allowed: `pipeline.generic-types`.

    Raises `InvalidRequestError`.
    """
    generic = [(plan.uid, state) for plan in operators for state in plan.kept if is_generic(state.kind)]
    if allowed:
        undeclared = [_described(uid, state) for uid, state in generic if state.undeclared]
        if undeclared:
            _log.warning(
                "job %s keeps pickled objects, because nobody has said what they are: %s. Who can write the storage "
                "could have code run when they are read (docs/security.md); with %s=false such jobs are refused",
                job,
                "; ".join(undeclared),
                OPTION,
            )
        return
    for uid, state in generic:
        raise InvalidRequestError(
            f"{_described(uid, state)}, which {OPTION}=false does not allow: its values would be pickled", operator=uid
        )
    if any(isinstance(s, CollectionSource) and is_generic(s.elements.state_type) for s in sources):
        raise InvalidRequestError(
            f"the elements of from_collection would be pickled until they are processed, which {OPTION}=false does not "
            "allow; give their type_info"
        )


def _described(uid: str, state: KeptState) -> str:
    advice = f" (declare {state.undeclared})" if state.undeclared else f" ({state.kind})"
    return f"state {state.name!r} of operator {uid!r}{advice}"
