"""`Trigger`: says when a window gives out what it holds; PyFlink's interface, for triggers of one's own.

A trigger keeps nothing in its fields: it is pickled and serves all keys. What it has to remember is state of the key
and the window (`get_partitioned_state`), and it removes it, and its timers, in `clear`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from varve.changelog.api.descriptors import StateDescriptor

T = TypeVar("T")
"""The elements."""
W = TypeVar("W")
"""The windows."""


class TriggerResult(Enum):
    """What becomes of a window: (is given out, is emptied)."""

    CONTINUE = (False, False)
    """Nothing."""
    FIRE_AND_PURGE = (True, True)
    """What it holds is given out and removed."""
    FIRE = (True, False)
    """What it holds is given out."""
    PURGE = (False, True)
    """What it holds is removed."""

    def is_fire(self) -> bool:
        """Whether what the window holds is given out."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether what the window holds is removed."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """When windows fire. A window that holds nothing gives nothing out."""

    class TriggerContext(ABC):
        """About the key and window of the call; valid only during the call, the same object every time.

        Times are milliseconds since 1970. A timer of event time fires when the watermark has reached it, one of
        processing time when the time of the batch is after it; both also in the batch that registers them, after its
        elements. Each belongs to the window: registered twice it fires once.
        """

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Time of the batch."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Watermark of the batch; -2**63 before there is one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Let `on_processing_time` be called. Raises `InvalidRequestError` for no time, as the next three."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Let `on_event_time` be called."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of this key and window: a handle of the descriptor's kind."""

    class OnMergeContext(TriggerContext):
        """About a window that others have become."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Let the window have what the others held in this state: a list, reducing or aggregating state.

            Raises:
                InvalidRequestError: A state of another kind, which cannot be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """An element has come into the window.

        Args:
            element: The element.
            timestamp: Its event time; None if the stream has none.
            window: The window, which holds it already.
            ctx: About the window.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """A timer of processing time fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """A timer of event time fires; so it does once when a window of event time is removed."""

    def can_merge(self) -> bool:
        """Whether the trigger can be that of sessions, which merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Windows have become this one: several, or one that is longer now; `clear` is called for the old ones then."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """The window is removed: remove what the trigger keeps of it, timers included."""
