"""An HTTP proxy in front of an S3 server that adds latency and counts what passes: requests and bytes, by kind.

It forwards each request as it came, `Host` included, so signatures stay valid. Bodies of requests are held in memory
(clients send large objects in parts of a few megabytes), large answers are passed on as they come.

```python
with S3Proxy(server.endpoint_url, latency_ms=20) as proxy:
    ...  # s3fs with endpoint_url=proxy.url
    print(proxy.counts()["PUT"].requests)
```
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple, Self
from urllib.parse import parse_qs

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

KINDS = ("GET", "HEAD", "LIST", "PUT", "COPY", "MULTIPART", "DELETE", "OTHER")
"""Kinds of requests that S3 bills apart: COPY is a PUT without a body, MULTIPART begins or completes an upload in parts
(the parts are PUT), a DELETE may name up to 1000 objects."""
START_S = 10.0
STREAMED_FROM_BYTES = 1 << 20
"""Larger answers are not read as a whole: some clients ask for more than they take."""

_OF_ONE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})


class Traffic(NamedTuple):
    """Requests of one kind; repeated requests count as often as they were sent."""

    requests: int
    sent_bytes: int
    """Bodies of requests."""
    received_bytes: int
    """Bodies of answers, as far as the client took them."""

    def __sub__(self, earlier: Traffic) -> Traffic:
        """Requests since `earlier` was counted."""
        return Traffic(*(now - then for now, then in zip(self, earlier, strict=True)))


@dataclass(frozen=True)
class Request:
    """One request, whole."""

    method: str
    target: str
    """Path and query as they were sent."""
    headers: CIMultiDict[str]
    body: bytes

    @property
    def key(self) -> str:
        """The object's name in its bucket; "" if the request is about the bucket."""
        return self.target.partition("?")[0].lstrip("/").partition("/")[2]

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        query = parse_qs(self.target.partition("?")[2], keep_blank_values=True)
        if self.method == "POST":
            return "DELETE" if "delete" in query else "MULTIPART" if query.keys() & {"uploads", "uploadId"} else "OTHER"
        if self.method == "GET" and not self.key:
            return "LIST" if query.keys() & {"list-type", "prefix"} else "OTHER"
        if self.method == "PUT":
            return "COPY" if "x-amz-copy-source" in self.headers else "PUT" if self.key else "OTHER"
        return self.method if self.method in KINDS else "OTHER"


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int
    headers: CIMultiDict[str]
    body: bytes
    rest: ClientResponse | None = None
    """Source of a large body, instead of `body`."""
    cut_at: int | None = None
    """So many bytes of the body are sent, then the connection is closed; None: all."""

    async def whole(self) -> Reply:
        """The same with its body in memory."""
        if self.rest is None:
            return self
        async with self.rest:
            return replace(self, body=await self.rest.read(), rest=None)

    def drop(self) -> None:
        """Nobody reads the body."""
        if self.rest is not None:
            self.rest.close()


class S3Proxy:
    """A proxy on a free port of the loopback, in a thread of this process; use it as a context manager.

    A subclass that does more than forward overrides `exchange`.
    """

    def __init__(
        self, upstream_url: str, latency_ms: float = 0.0, kind_of: Callable[[Request], str] | None = None
    ) -> None:
        """Nothing runs before the context begins.

        Args:
            upstream_url: `http://host:port`.
            latency_ms: Added to every request before it is forwarded.
            kind_of: One of `KINDS` for a request; by default those of S3.
        """
        self._kind_of = kind_of or (lambda request: request.kind)
        self._upstream_url = upstream_url.rstrip("/")
        self._latency_s = latency_ms / 1000
        self._requests: Counter[str] = Counter()
        self._sent_bytes: Counter[str] = Counter()
        self._received_bytes: Counter[str] = Counter()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="s3-proxy", daemon=True)
        self._started: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event
        self._session: ClientSession
        self.url = ""
        """Address for clients; known once the proxy runs."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._started.result(START_S)}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def counts(self) -> dict[str, Traffic]:
        """Kind → what has passed so far; every kind is there."""
        return {
            kind: Traffic(self._requests[kind], self._sent_bytes[kind], self._received_bytes[kind]) for kind in KINDS
        }

    async def exchange(self, request: Request) -> Reply | None:
        """The answer to a request; None closes the connection without one."""
        return await self.forward(request)

    async def forward(self, request: Request) -> Reply | None:
        """The server's answer; None if it gave none."""
        headers = _passed_on(request.headers)
        url = URL(self._upstream_url + request.target, encoded=True)
        body = io.BytesIO(request.body) if request.body else None  # aiohttp warns of large bytes
        try:
            answer = await self._session.request(request.method, url, headers=headers, data=body, allow_redirects=False)
            reply = Reply(answer.status, _passed_on(answer.headers), b"", answer)
            if request.method == "HEAD" or (answer.content_length or 0) <= STREAMED_FROM_BYTES:
                return await reply.whole()
        except (ClientError, OSError, TimeoutError):
            return None
        return reply

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        added = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
        timeout = ClientTimeout(total=None, sock_connect=START_S, sock_read=120)
        async with ClientSession(
            connector=TCPConnector(limit=0), timeout=timeout, auto_decompress=False, skip_auto_headers=added
        ) as self._session:
            runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
            try:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
            except OSError as error:
                self._started.set_exception(error)
                return
            self._started.set_result(runner.addresses[0][1])
            await self._stopped.wait()
            await runner.cleanup()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        if incoming.headers.get("Expect", "").lower() == "100-continue":
            await incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            incoming.writer.output_size = 0  # the answer has not begun
        # Not incoming.read(), which has a limit of 1 MiB.
        body = await incoming.content.read()
        request = Request(incoming.method, incoming.raw_path, CIMultiDict(incoming.headers), body)
        kind = self._kind_of(request)
        self._requests[kind] += 1
        self._sent_bytes[kind] += len(body)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        reply = await self.exchange(request)
        if reply is None:
            if incoming.transport is not None:
                incoming.transport.abort()
            return web.Response()  # goes nowhere
        headers = CIMultiDict(reply.headers)
        if reply.rest is None and request.method != "HEAD":
            headers["Content-Length"] = str(len(reply.body))
        response = web.StreamResponse(status=reply.status, headers=headers)
        try:
            await response.prepare(incoming)
            await self._send(reply, response, kind)
            is_complete = reply.cut_at is None
        except (ClientError, OSError):  # of either side
            is_complete = False
        finally:
            reply.drop()
        if not is_complete and incoming.transport is not None:
            incoming.transport.close()
        return response

    async def _send(self, reply: Reply, response: web.StreamResponse, kind: str) -> None:
        """Pass the body on, and count what the client takes."""
        if reply.rest is None:
            await response.write(reply.body[: reply.cut_at])
            self._received_bytes[kind] += len(reply.body[: reply.cut_at])
            return
        async for chunk in reply.rest.content.iter_any():
            await response.write(chunk)
            self._received_bytes[kind] += len(chunk)


def _passed_on(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION)
