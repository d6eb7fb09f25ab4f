"""The topics that a query reads: noted with the position of its input, and compared at each start.

Format: docs/reference/formats/checkpoint-location.md#topics-of-kafka-sources.

Spark knows a topic by its name, and a position by offsets. If a topic was deleted and made anew, it goes on at the old
offset and skips the first rows without a word. So the ids of topics are noted, in the file `_varvite/topics` of the
checkpoint location and of each position. Rows that Kafka has deleted before they were read are found at the start, too.

Invariants: I8 (a frame with magic, version and checksums), I11 (a topic that is another one is an error).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.materializer.options.start import START_PATH
from varvite.materializer.restore.spark_files import parse_offsets
from varvite.storage.errors import InvalidRequestError, LineageError
from varvite.storage.format.frame import UNPARSABLE, decode_json, frame, unframe

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND: Final = b"KAFT"
VERSION: Final = 1
TOPICS: Final = "_varvite/topics"
"""Name in the checkpoint location."""
_LOSS: Final = "Some data may have been lost because they are not available in Kafka any more"
_REASON: Final = re.compile(r"Reason: ([^\n]+)")


class NotedTopics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a query's Kafka sources."""

    ids: dict[str, dict[str, str]]
    """Source, as Spark's offset log names it → topic → id."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now."""

    id: str
    earliest: Mapping[int, int]
    """Partition → the first offset that Kafka still has."""


@dataclass(frozen=True, slots=True)
class LostRows:
    """Offsets of a partition that Kafka has deleted before the job has read them."""

    topic: str
    partition: int
    begin: int
    end: int
    """Exclusive."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.begin} to {self.end - 1}"


def encode_topics(ids: dict[str, dict[str, str]]) -> bytes:
    """The bytes of the note."""
    return frame(KIND, VERSION, msgspec.json.encode(NotedTopics(ids=ids), order="sorted"))


def decode_topics(data: bytes, object_name: str) -> dict[str, dict[str, str]]:
    """The ids of such a note. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(KIND, VERSION, data, object_name)
    return decode_json(opened.header, NotedTopics, "the note of topics", object_name).ids


def kafka_offsets(offsets: bytes, batch: int) -> dict[str, dict[str, dict[int, int]]]:
    """Source → topic → partition → end offset, of the Kafka sources in a file of Spark's offset log."""
    sources: dict[str, dict[str, dict[int, int]]] = {}
    for source, offset, _ in parse_offsets(offsets, f"offsets/{batch}", batch):
        topics = _topics_of(offset)
        if topics is not None:
            sources[source] = topics
    return sources


def _topics_of(offset: str) -> dict[str, dict[int, int]] | None:
    """The offset of a Kafka source; None: it is of another one."""
    try:
        return msgspec.json.decode(offset, type=dict[str, dict[int, int]])
    except UNPARSABLE:
        return None


def check_ids(noted: Mapping[str, str], now: Mapping[str, Topic], batch: int, seq: int) -> None:
    """Raise `LineageError` if a topic is not the one that was read. Topics that are gone are an error of Spark's.

    Args:
        noted: Topic → id.
        now: The topics that there are.
        batch: The batch up to which they were read.
        seq: Seq of its checkpoint.
    """
    for name, known in noted.items():
        topic = now.get(name)
        if topic is not None and topic.id != known:
            raise LineageError(
                f"the topic {name!r} is another one than the job has read up to batch {batch}: it was deleted and made "
                f"anew (its id was {known}, and is {topic.id}). Spark would skip as many of its rows as the old one "
                "had. Bring the old topic back under its name; or, to read the new one from its beginning on top of "
                f"the state, set a new checkpointLocation, and {START_PATH.key} to {seq} for that start",
                batch=batch,
            )


def loss_in_batch(error: BaseException, batch: int) -> InvalidRequestError | None:
    """The error to raise for a batch that could not read what Spark had planned; None: it is another error.

    Spark's own has the text of several tasks, so long that Spark may not even keep it.
    """
    text = str(error)
    if _LOSS not in text:
        return None
    reason = _REASON.search(text)
    detail = f" ({reason[1].strip()})" if reason else ""
    return InvalidRequestError(
        f"Kafka has deleted rows of this batch, or their topic, before they were read{detail}. To go on without them, "
        "set the source's option failOnDataLoss to false. Longer retention of the topic keeps it from happening again",
        batch=batch,
    )


def lost_rows(
    read: Mapping[str, Mapping[int, int]],
    earliest: Mapping[str, Mapping[int, int]],
    ends: Mapping[str, Mapping[int, int]] | None = None,
) -> list[LostRows]:
    """The rows behind what was read that Kafka has not any more.

    Args:
        read: Topic → partition → the offset up to which it was read.
        earliest: Topic → partition → the first offset that Kafka still has.
        ends: Topic → partition → the offset up to which is looked; None: as far as Kafka has deleted.
    """
    lost: list[LostRows] = []
    for topic, partitions in read.items():
        for partition, begin in partitions.items():
            end = earliest.get(topic, {}).get(partition, 0)
            if ends is not None:
                end = min(end, ends.get(topic, {}).get(partition, 0))
            if end > begin:
                lost.append(LostRows(topic, partition, begin, end))
    return lost


def next_offsets(
    read: Mapping[str, Mapping[int, int]], earliest: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """The offsets of the next rows: those behind what was read, or the first that Kafka still has."""
    return {
        topic: {number: max(end, earliest.get(topic, {}).get(number, 0)) for number, end in ends.items()}
        for topic, ends in read.items()
    }
