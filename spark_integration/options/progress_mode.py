"""The way in which a query's progress is kept: in the chain alone, or in Spark's logs as well; pure.

Spark can write its logs rarely (its asynchronous progress tracking). Then nothing but the chain is written in a batch.
The sources must allow it: their offsets say all that a batch reads, and they do nothing when Spark commits a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from varvite.materializer.options.driver import PROGRESS
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SOURCES: Final = frozenset({"rate", "rate-micro-batch", "kafka"})
"""Sources of Spark whose offsets say all, by the name for `readStream.format`."""
NEVER_MS: Final = 10 * 365 * 86_400_000
SPARK_OPTIONS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(NEVER_MS),
    # Spark allows it for some sinks of its own; here the chain does what its check is for.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Options of a stream writer with which Spark writes its logs in a run's first batch only."""


@dataclass(frozen=True, slots=True)
class ProgressMode:
    """The way, with its reason."""

    is_in_chain: bool
    reason: str
    """The reason that Spark writes its logs in each batch, for people; empty if it does not."""


IN_CHAIN: Final = ProgressMode(is_in_chain=True, reason="")
IN_SPARK_LOG: Final = ProgressMode(is_in_chain=False, reason="nothing else was decided")


def decide_progress(
    option: str, sources: Collection[str], trigger: Mapping[str, object], *, has_spark_state: bool
) -> ProgressMode:
    """Decide on a query.

    Args:
        option: The value of `execution.checkpointing.progress`.
        sources: Names of its sources.
        trigger: Spark's, as for `DataStreamWriter.trigger`.
        has_spark_state: Operators of Spark in the input keep state.

    Raises:
        InvalidRequestError: The option asks for what Spark refuses.
    """
    ends = sorted({"availableNow", "once"} & set(trigger))
    unknown = sorted(set(sources) - SOURCES)
    refused = ""
    if ends:
        refused = f"the trigger {ends[0]} needs Spark's logs"
    elif has_spark_state:
        refused = "operators of Spark in the input keep state in its checkpoint location"
    if option == "chain" and refused:
        raise InvalidRequestError(f"option {PROGRESS.key} is chain, but {refused}; set it to auto")
    if option == "spark":
        return ProgressMode(is_in_chain=False, reason=f"{PROGRESS.key} is spark")
    if not refused and unknown and option != "chain":
        refused = f"the source {unknown[0]} may keep more than its offsets in Spark's checkpoint location"
    return ProgressMode(is_in_chain=False, reason=refused) if refused else IN_CHAIN
