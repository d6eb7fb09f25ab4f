"""Uploads many objects at once, with limits (I10), retries and hedges against a slow request.

Plain PUTs only, of names that nobody else writes: sending the same bytes twice is harmless. So a slow attempt gets a
hedge, the first success counts, and a late loser only writes the same bytes again. They are the same because an object
is encoded once for all its attempts, also where it is encrypted.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from varvite.storage.attempt_threads import AttemptThreads, no_thread
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError, RetryableError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.local.files import check_source
from varvite.storage.object_stores.prepared_object import Preparation
from varvite.storage.transfer.byte_budget import ByteBudget
from varvite.storage.transfer.options import UPLOAD_ATTEMPTS, UPLOAD_DEADLINE, UPLOAD_THREADS, UPLOAD_TIMEOUT

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

CONCURRENT_ATTEMPTS: Final = 2
"""Concurrent attempts of one upload: the first and its hedge."""


@dataclass(frozen=True)
class UploadPolicy:
    """The limits of an uploader."""

    uploads: int = UPLOAD_THREADS.default
    """Concurrent uploads; each may have two attempts running."""
    in_flight_bytes: int = 64 << 20
    """Bytes accepted and not yet done; beyond it `submit_*` blocks. A larger object is admitted alone."""
    hedge_after_s: float = UPLOAD_TIMEOUT.default / 1000
    """An attempt without an answer gets a hedge after this time."""
    deadline_s: float = UPLOAD_DEADLINE.default / 1000
    """An upload fails if it is not done within this time after it was submitted, or if it has to wait this long to be
    accepted because no other upload ends."""
    backoff: Backoff = field(default_factory=lambda: Backoff(UPLOAD_ATTEMPTS.default, initial_s=0.2, maximum_s=5.0))
    """Attempts per object, hedges included, and the pauses after failures."""

    def __post_init__(self) -> None:
        if self.uploads < 1 or self.in_flight_bytes < 1 or self.hedge_after_s <= 0 or self.deadline_s <= 0:
            raise InvalidRequestError(f"{self} is no upload policy: every limit must be above 0")


class UploadOutcome(NamedTuple):
    """The outcome of an upload."""

    size_bytes: int
    succeeded: bool
    attempt: int
    """The number, from 1, of the attempt that succeeded; 0 if none did."""
    started: int
    """Attempts started, hedges included."""
    latency_s: float
    """The time from the first attempt to the end."""


class UploadObserver(Protocol):
    """Observes the uploads of an uploader, from any thread; must not raise or block."""

    def queued(self, size_bytes: int) -> None:
        """An upload was accepted."""
        ...

    def ended(self, end: UploadOutcome) -> None:
        """An upload has ended; called exactly once for each that was accepted."""
        ...


class UploadResources:
    """Threads of attempts and bytes in flight that concurrent or consecutive uploaders share.

    So attempts of earlier uploads that were given up and still hang count for later ones (I10). `AttemptThreads` and
    `ByteBudget` say how many there may be before later ones wait. `close` it.
    """

    def __init__(self, policy: UploadPolicy) -> None:
        self.threads = AttemptThreads(CONCURRENT_ATTEMPTS * policy.uploads)
        self.budget = ByteBudget(policy.in_flight_bytes)

    def resize(self, policy: UploadPolicy) -> None:
        """Change the limits."""
        self.threads.limit = CONCURRENT_ATTEMPTS * policy.uploads
        self.budget.resize(policy.in_flight_bytes)

    def close(self) -> None:
        """Start no more attempts; those that run end by the store's own timeouts, and their outcome does not matter."""
        self.threads.close()


class Uploader:
    """Uploads to one store from a bounded number of threads; use it as a context manager or `close()` it.

    Threads do not survive a fork: construct it in the process that uses it. A failed upload fails its own future only.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        policy: UploadPolicy | None = None,
        observer: UploadObserver | None = None,
        resources: UploadResources | None = None,
    ) -> None:
        """`resources` are shared with other uploaders; None: they are its own."""
        self._store = store
        self._clock = clock
        self._observer = observer
        self._policy = policy or UploadPolicy()
        self._uploads = ThreadPoolExecutor(self._policy.uploads, "varvite-upload")
        self._owned = None if resources else UploadResources(self._policy)
        self._resources = resources or cast("UploadResources", self._owned)
        self._closed = threading.Event()
        self._abandoned: Future[None] = Future()

    def submit_bytes(self, name: str, data: bytes) -> Future[None]:
        """Upload `data` as `name`; blocks while too many bytes are in flight.

        The future's errors: those of `ObjectStore.put`, and `MayHaveHappenedError` at the deadline.
        Raises `InvalidRequestError` after `close`, and `DidNotHappenError` if it is not accepted by the deadline or the
        machine has no thread left.
        """
        return self._submit(name, len(data), data)

    def submit_file(self, name: str, path: Path) -> Future[None]:
        """Upload the file at `path` as `name`; blocks and fails like `submit_bytes`.

        The file may be deleted once the future is done, but it must never be written again: a late attempt may
        still be reading it.
        """
        size_bytes = check_source(path).stat().st_size
        return self._submit(name, size_bytes, path)

    def close(self) -> None:
        """Finish all submitted uploads, then stop. Later submits are refused; closing again does nothing."""
        self._closed.set()
        self._uploads.shutdown(wait=True)
        self._close_owned()

    def abandon(self) -> None:
        """Give up unfinished uploads: their futures fail or are cancelled, and their objects may or may not appear.

        Then it is closed. Requests that are under way end by the store's own timeouts.
        """
        if not self._abandoned.done():
            self._abandoned.set_result(None)
        self._closed.set()
        self._uploads.shutdown(wait=True, cancel_futures=True)
        self._close_owned()

    def _close_owned(self) -> None:
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, name: str, size_bytes: int, content: bytes | Path) -> Future[None]:
        if self._closed.is_set():
            raise InvalidRequestError("this uploader is closed; make a new one", object_name=name)
        submitted_s = self._clock.monotonic_s()
        budget = self._resources.budget
        if not budget.take(size_bytes, self._policy.deadline_s):
            raise DidNotHappenError(
                f"{budget.taken_bytes} bytes of other uploads are in flight, {budget.given_up_bytes} were given up and "
                f"still hang, and none was done within {self._policy.deadline_s:g} s; see whether the storage answers, "
                "then try again",
                object_name=name,
            )
        upload = _Upload(self._store, name, content, size_bytes, budget)
        race = _Race(upload, self._resources.threads, self._policy, self._clock, self._abandoned, submitted_s)
        if self._observer is not None:
            self._observer.queued(size_bytes)
        try:
            future = self._uploads.submit(race.run)
        except RuntimeError as error:
            race.is_dropped = True
            upload.end()
            self._ended(size_bytes, race, succeeded=False)
            if not self._closed.is_set():
                raise no_thread(error).with_context(object_name=name) from error
            raise InvalidRequestError("this uploader was closed meanwhile; make a new one", object_name=name) from error
        # A callback, not a finally: it also comes if the caller cancels the future before it began.
        future.add_done_callback(lambda _: upload.end())
        future.add_done_callback(lambda f: self._ended(size_bytes, race, succeeded=_succeeded(f)))
        return future

    def _ended(self, size_bytes: int, race: _Race, *, succeeded: bool) -> None:
        if self._observer is not None:
            self._observer.ended(UploadOutcome(size_bytes, succeeded, race.winner, race.started, race.latency_s))


def _succeeded(future: Future[None]) -> bool:
    return not future.cancelled() and future.exception() is None


class _Upload:
    """One object to upload; its bytes are released at the end of its last attempt."""

    def __init__(
        self, store: ObjectStore, name: str, content: bytes | Path, size_bytes: int, budget: ByteBudget
    ) -> None:
        """The bytes have been taken from `budget` already."""
        self.name = name
        self._object = Preparation(store, name, content)
        self._size_bytes = size_bytes
        self._budget = budget
        self._lock = threading.Lock()
        self._attempts = 0
        """The number of running attempts."""
        self._is_over = False
        """True when nobody waits for it any more."""

    def attempt(self, threads: AttemptThreads) -> Future[None]:
        """Start one attempt."""
        with self._lock:
            self._attempts += 1
        started = threads.submit(lambda: self._object.ready().put())
        started.add_done_callback(lambda _: self._attempt_ended())
        return started

    def end(self) -> None:
        """Stop waiting for it; running attempts still hold its bytes."""
        with self._lock:
            self._is_over = True
            if self._attempts:
                self._budget.give_up(self._size_bytes)
                return
        self._object.close()
        self._budget.give_back(self._size_bytes)

    def _attempt_ended(self) -> None:
        with self._lock:
            self._attempts -= 1
            if self._attempts or not self._is_over:
                return
        self._object.close()
        self._budget.give_back(self._size_bytes, given_up=True)


class _Race:
    """The attempts of one upload: at most two at a time; the first success ends it."""

    def __init__(
        self,
        upload: _Upload,
        threads: AttemptThreads,
        policy: UploadPolicy,
        clock: Clock,
        abandoned: Future[None],
        submitted_s: float,
    ) -> None:
        self._upload = upload
        self._threads = threads
        self._policy = policy
        self._clock = clock
        self._submitted_s = submitted_s
        self._abandoned = abandoned
        """Done when nobody needs the upload any more; a future, to be waited for together with the attempts."""
        self._running: dict[Future[None], int] = {}
        """The attempts and their numbers, from 1."""
        self.started = 0
        self.winner = 0
        """The attempt that succeeded; 0 if none did."""
        self.latency_s = 0.0
        """The time from the first attempt to the end."""
        self.is_dropped = False
        """True if the pool refused it: the pool may still hold it for a later thread."""
        self._unclear = False
        self._last: RetryableError | None = None

    def run(self) -> None:
        """Return when the object is stored; raise otherwise."""
        if self.is_dropped:
            return
        begin_s = self._clock.monotonic_s()
        try:
            self._run(self._submitted_s + self._policy.deadline_s)
        finally:
            for attempt in self._running:
                self._threads.give_up(attempt)
            self.latency_s = self._clock.monotonic_s() - begin_s

    def _run(self, deadline: float) -> None:
        failures = 0
        if self._clock.monotonic_s() < deadline:
            self._start()
        while True:
            left_s = deadline - self._clock.monotonic_s()
            if left_s <= 0:
                raise self._deadline_error()
            timeout_s = min(self._policy.hedge_after_s, left_s)
            ended, _ = wait({*self._running, self._abandoned}, timeout=timeout_s, return_when=FIRST_COMPLETED)
            if self._abandoned in ended or any(
                attempt.cancelled() for attempt in ended
            ):  # or the resources were closed
                raise self._abandoned_error()
            if not ended:
                self._start()  # the hedge
                continue
            if self._has_success(ended):
                return
            for attempt in ended:
                del self._running[attempt]
            failures += len(ended)
            if self._running:
                continue
            if self.started >= self._policy.backoff.attempts:
                raise self._exhausted_error()
            self._clock.sleep(min(self._policy.backoff.pause_s(failures), left_s))
            self._start()

    def _start(self) -> None:
        if self.started < self._policy.backoff.attempts and len(self._running) < CONCURRENT_ATTEMPTS:
            self.started += 1
            self._running[self._upload.attempt(self._threads)] = self.started

    def _has_success(self, ended: set[Future[None]]) -> bool:
        """True if one of these attempts succeeded. Raises an error that a retry cannot cure."""
        errors = {number: attempt.exception() for attempt, number in self._running.items() if attempt in ended}
        successful = [number for number, error in errors.items() if error is None]
        if successful:
            self.winner = min(successful)
            return True
        for error in errors.values():
            if not isinstance(error, RetryableError):
                raise cast("BaseException", error)
            self._last = error
            self._unclear |= isinstance(error, MayHaveHappenedError)
        return False

    def _deadline_error(self) -> MayHaveHappenedError:
        return MayHaveHappenedError(
            f"the upload was not confirmed within {self._policy.deadline_s:g} s "
            f"({UPLOAD_DEADLINE.key}); {self.started} attempts were made, {self._threads.lost} "
            "earlier ones of this process never returned. See whether the storage answers; the object may appear "
            f"later, try again under a new name ({self._last})",
            object_name=self._upload.name,
        )

    def _abandoned_error(self) -> MayHaveHappenedError:
        return MayHaveHappenedError("the upload was given up; the object may appear", object_name=self._upload.name)

    def _exhausted_error(self) -> RetryableError:
        kind = MayHaveHappenedError if self._unclear else DidNotHappenError
        return kind(
            f"{self.started} attempts to upload failed; try again when the storage answers ({self._last})",
            object_name=self._upload.name,
        )
