"""A limit on the bytes per second that a materializer exchanges with the storage (I10): the job keeps its share.

Over time the rate is kept exactly. A single object is transferred at full speed, and the next one waits until the
bucket has refilled. The limit covers log and snapshot files, not the chain and not heartbeats.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from varvite.storage.object_stores.pass_through import PassThroughStore

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.materializer.resources.stop_signal import StopSignal
    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

NAP_S: Final = 0.2
"""Longest wait between two checks of the stop flag."""


class TokenBucket:
    """A token bucket: refilled at a steady rate, holds at most one second's bytes; shared by all threads."""

    def __init__(self, bytes_per_s: int, clock: Clock, stop: StopSignal) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._left_bytes = float(bytes_per_s)
        self._filled_s = clock.monotonic_s()

    def take(self, size_bytes: int) -> None:
        """Take bytes, and wait until the bucket has refilled from them. Raises `Stopped` when asked to stop."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            refilled = self._left_bytes + (now_s - self._filled_s) * self._bytes_per_s
            self._left_bytes = min(float(self._bytes_per_s), refilled) - size_bytes
            self._filled_s = now_s
            refilled_s = now_s - self._left_bytes / self._bytes_per_s
        while (left_s := refilled_s - self._clock.monotonic_s()) > 0:
            self._stop.check()
            self._clock.sleep(min(left_s, NAP_S))


class ThrottledReads(PassThroughStore):
    """A store that takes the bytes it reads from a bucket.

    The bytes of whole objects are taken afterwards, when their size is known. Writes are not throttled here: an
    uploader would mistake the wait for a slow server and begin a second attempt. So the bytes of an upload are taken
    before it is submitted.
    """

    def __init__(self, inner: ObjectStore, bucket: TokenBucket) -> None:
        super().__init__(inner)
        self._bucket = bucket

    def get(self, name: str) -> bytes:
        data = super().get(name)
        self._bucket.take(len(data))
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        self._bucket.take(length)
        return super().get_range(name, offset, length)

    def get_file(self, name: str, path: Path) -> None:
        super().get_file(name, path)
        self._bucket.take(path.stat().st_size)
