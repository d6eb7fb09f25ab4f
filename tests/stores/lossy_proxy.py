"""A proxy in front of an S3 server that loses, delays, refuses, cuts or changes requests: as told, or at random."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum

from aiohttp import ClientError
from multidict import CIMultiDict

from benchmarks.harness.s3_proxy import Reply, Request, S3Proxy


class Fault(Enum):
    """Fate of one request."""

    LOSE_REPLY = "the server does it, the client's connection is reset without an answer"
    LOSE_REQUEST = "the connection is reset before the server sees it"
    HANG = "the server does it, the client gets no answer for as long as the test runs"
    CUT = "the server does it, the client gets half of the answer's body"


@dataclass(frozen=True)
class Answer:
    """An answer as AWS words it, instead of the server's."""

    status: int
    code: str
    done: bool = False
    """True if the server does it nevertheless."""
    headers: tuple[tuple[str, str], ...] = ()

    def reply(self) -> Reply:
        body = f"<Error><Code>{self.code}</Code><Message>said on purpose</Message></Error>"
        headers = CIMultiDict([("Content-Type", "application/xml"), *self.headers])
        return Reply(self.status, headers, body.encode())


BUSY = Answer(503, "SlowDown")
SKEWED = Answer(403, "RequestTimeTooSkewed")
EXPIRED = Answer(400, "ExpiredToken")
FAILED_BUT_DONE = Answer(500, "InternalError", done=True)


@dataclass(frozen=True)
class Weather:
    """Random faults: how likely each is per request."""

    faults: tuple[tuple[Fault | Answer, float], ...] = (
        (Fault.LOSE_REPLY, 0.03),
        (Fault.LOSE_REQUEST, 0.03),
        (Fault.CUT, 0.03),
        (BUSY, 0.03),
        (FAILED_BUT_DONE, 0.03),
    )
    delay: float = 0.1
    delay_max_s: float = 0.3


CALM = Weather(faults=(), delay=0.0)


class LossyProxy(S3Proxy):
    """A proxy whose attributes say what goes wrong; they may be changed at any time."""

    def __init__(self, upstream_url: str, seed: int = 0) -> None:
        super().__init__(upstream_url)
        self.faults: deque[Fault | Answer] = deque()
        """For the next PUT requests, in order."""
        self.read_faults: deque[Fault | Answer] = deque()
        """For the next GET requests, in order."""
        self.always: Answer | None = None
        """Answer to every request."""
        self.weather = CALM
        """For requests that nothing above is said of."""
        self.ignore_conditions = False
        """True if If-None-Match is dropped, as some S3 clones do."""
        self.seen: list[str] = []
        """The methods of all requests."""
        self.released = threading.Event()
        """Ends the waiting of requests that hang."""
        self._rng = random.Random(seed)

    def __exit__(self, *error: object) -> None:
        self.released.set()
        super().__exit__(*error)

    async def exchange(self, request: Request) -> Reply | None:
        self.seen.append(request.method)
        if self.ignore_conditions:
            request.headers.popall("If-None-Match", None)
        if self._rng.random() < self.weather.delay:
            await asyncio.sleep(self._rng.random() * self.weather.delay_max_s)
        fault = self._fault(request.method)
        if isinstance(fault, Answer):
            if fault.done:
                await self._done(request)
            return fault.reply()
        if fault is Fault.LOSE_REQUEST:
            return None
        if fault is None:
            return await self.forward(request)
        reply = await self._done(request)
        if fault is Fault.HANG:
            await asyncio.to_thread(self.released.wait, 60)
        is_cut = fault is Fault.CUT and reply is not None and len(reply.body) > 1
        return dataclasses.replace(reply, cut_at=len(reply.body) // 2) if is_cut else None

    async def _done(self, request: Request) -> Reply | None:
        """The server's answer, when it has said all of it."""
        reply = await self.forward(request)
        try:
            return None if reply is None else await reply.whole()
        except (ClientError, OSError):
            return None

    def _fault(self, method: str) -> Fault | Answer | None:
        if self.always is not None:
            return self.always
        planned = {"PUT": self.faults, "GET": self.read_faults}.get(method)
        if planned:
            return planned.popleft()
        strike = self._rng.random()
        for fault, chance in self.weather.faults:
            if strike < chance:
                return fault
            strike -= chance
        return None
