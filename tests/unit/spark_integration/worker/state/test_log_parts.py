"""The changelog of an attempt in parts: what is uploaded early, what is left, and what an abandoned attempt leaves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.scripted import ScriptedStore
from tests.workers.state_worker_setup import eventually
from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.replay import FlooredSegment, replay
from varvite.changelog.segments.segment import SegmentHeader, decode_segment
from varvite.changelog.types.factory import as_type
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.worker.state.log_parts import SegmentLimits, SegmentParts
from varvite.spark_integration.worker.state.part_decision import ChangeSizes
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import Link
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.transfer.slice_reader import read_slice
from varvite.storage.transfer.upload import Uploader, UploadPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.spark_integration.worker.state.log_parts import Log

SEQ, TAG = 7, "7" * 32
AT = Link(SEQ, "token")
VALUE = ValueStateDescriptor("value", "bigint")
LIST = ListStateDescriptor("list", "bigint")
MAP = MapStateDescriptor("map", "bigint", "bigint")
INLINE_MAX = 1 << 20


class Job:
    """A backend, and the attempts over it."""

    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.backend = KeyedStateBackend(new_store(), as_type("string"), "op")
        self.value = self.backend.get_state(VALUE)
        self.list = self.backend.get_list_state(LIST)
        self.map = self.backend.get_map_state(MAP)
        self.uploaders: list[Uploader] = []

    def parts(self, part_bytes: int = 1, inline_bytes_max: int = INLINE_MAX, **policy: Any) -> SegmentParts:
        """A new attempt."""

        def uploader() -> Uploader:
            limits = UploadPolicy(**{"backoff": Backoff(1), "hedge_after_s": 60.0, **policy})
            self.uploaders.append(Uploader(self.store, SystemClock(), limits))
            return self.uploaders[-1]

        header = SegmentHeader(
            job_id="job", operator="op", partition=3, low=0, high=4, seq=SEQ, tag=TAG, key_type="1:string"
        )
        limits = SegmentLimits(part_bytes, inline_bytes_max)
        return SegmentParts(header, self.backend, limits, ChangeSizes(), uploader)

    def change(self, number: int) -> None:
        """Changes of every kind to one key, which depend on those before."""
        self.backend.set_current_key(1, "key")
        self.value.update((self.value.value() or 0) + number)
        if number % 3 == 0:
            self.list.clear()
            self.map.clear()
        self.list.add(number)
        self.map.put(number % 2, number)
        self.map.remove(number % 5)

    def state(self) -> tuple[Any, Any, Any]:
        """Calls that are seen."""
        self.backend.set_current_key(1, "key")
        return self.value.value(), self.list.get(), sorted(self.map.items())

    def replayed(self, log: Log) -> tuple[Any, Any, Any]:
        """The state that the log alone gives."""
        encoded = [bytes(read_slice(self.store, one)) for one in log.uploaded] + ([log.inline] if log.inline else [])
        segments = [decode_segment(data, "segment") for data in encoded]
        assert [s.header.part for s in segments] == list(range(len(segments)))
        assert {(s.header.seq, s.header.tag) for s in segments} <= {(SEQ, TAG)}
        other = Job()
        floors = (KeyGroupFloor(0, 4, 0),)
        replay(other.backend.store, [FlooredSegment(s, floors) for s in segments], AT, low=0, high=4)
        return other.state()


def new_store() -> HashMapStore:
    return HashMapStore(operator="op", key_type="1:string", low=0, high=4)


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    for uploader in made.uploaders:
        uploader.abandon()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds puts until it is set; set at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


def upload_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("varvite-upload")]


def test_a_batch_below_the_threshold_is_one_inline_segment_and_makes_no_uploader(job: Job) -> None:
    parts = job.parts(part_bytes=5 << 20)
    for number in range(5):
        job.change(number)
        assert not parts.after_input(1000)
    seen, log = job.state(), parts.finish()
    assert (log.uploaded, job.uploaders) == ((), [])
    assert job.replayed(log) == seen
    assert parts.mutations > 0


@pytest.mark.parametrize("inline_bytes_max", [0, INLINE_MAX])
def test_parts_and_rest_replayed_in_order_are_what_the_function_saw_and_what_is_folded(
    job: Job, inline_bytes_max: int
) -> None:
    parts = job.parts(inline_bytes_max=inline_bytes_max)
    for number in range(1, 8):
        job.change(number)
        assert parts.after_input(1)
    job.change(8)
    seen, log = job.state(), parts.finish()
    assert [one.name for one in log.uploaded] == [
        layout.segment(SEQ, "op", 3, TAG, i) for i in range(7 if log.inline else 8)
    ]
    assert bool(log.inline) == (inline_bytes_max > 0)
    assert job.replayed(log) == seen
    job.backend.prepare(SEQ)
    job.backend.fold(AT)
    assert job.state() == seen
    assert eventually(lambda: upload_threads() == [], 20)


def test_nothing_may_be_left_after_the_last_part(job: Job) -> None:
    parts = job.parts()
    job.change(1)
    parts.after_input(1)
    seen, log = job.state(), parts.finish()
    assert (len(log.uploaded), log.inline) == (1, b"")
    assert job.replayed(log) == seen


def test_finish_waits_until_every_part_is_durable(job: Job, gate: threading.Event) -> None:
    job.store.script["put"].append(lambda: gate.wait(20) or None)
    parts = job.parts()
    job.change(1)
    assert parts.after_input(1), "the function does not wait for the upload"
    assert job.store.calls in ([], ["put"])
    assert list(job.store.list("seg/")) == []
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    log = parts.finish()
    opener.join()
    assert [meta.name for meta in job.store.list("seg/")] == [one.name for one in log.uploaded]


@pytest.mark.parametrize("finishes", [True, False])
def test_a_failed_upload_fails_the_attempt_at_the_next_part_or_at_the_end(job: Job, finishes: bool) -> None:
    def refuse() -> None:
        raise InvalidRequestError("no permission")

    def go_on() -> None:
        while True:  # until the failure is known
            job.change(2)
            parts.after_input(1)

    job.store.script["put"].append(refuse)
    parts = job.parts()
    job.change(1)
    parts.after_input(1)
    with pytest.raises(InvalidRequestError, match="no permission"):
        parts.finish() if finishes else go_on()
    parts.abandon()
    job.backend.drop()
    assert job.state() == (None, [], [])


def test_an_abandoned_attempt_leaves_no_thread_and_uploads_nothing_more(job: Job, gate: threading.Event) -> None:
    job.store.script["put"].append(lambda: gate.wait(20) or None)
    parts = job.parts(uploads=1)
    for number in (1, 2, 3):
        job.change(number)
        assert parts.after_input(1)
    parts.abandon()
    parts.abandon()
    gate.set()
    assert eventually(lambda: upload_threads() == [], 20)
    assert [meta.name for meta in job.store.list("seg/")] in ([], [layout.segment(SEQ, "op", 3, TAG, 0)])


def test_sizes_are_learnt_from_what_was_encoded(job: Job) -> None:
    parts = job.parts(part_bytes=1 << 40)
    for number in range(2000):
        job.backend.set_current_key(1, f"key-{number}")
        job.value.update(number)
    assert not parts.after_input(1 << 20)
    log = parts.finish()
    assert parts.sizes == ChangeSizes(len(log.inline) / 2000, len(log.inline) / (1 << 20))
