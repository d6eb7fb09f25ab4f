"""A proxy that gives answers of its own, as Google and Azure word them."""

from __future__ import annotations

from multidict import CIMultiDict

from benchmarks.harness.s3_proxy import Reply, Request, S3Proxy


class AnsweringProxy(S3Proxy):
    """Gives one answer in place of the server's, to the next requests of a method."""

    def __init__(self, upstream_url: str) -> None:
        super().__init__(upstream_url)
        self.seen: list[str] = []
        self.answers: list[tuple[str, int, str, bool]] = []
        """Method, status, reason, and if the server does it nevertheless."""

    async def exchange(self, request: Request) -> Reply | None:
        self.seen.append(request.method)
        planned = next((answer for answer in self.answers if answer[0] == request.method), None)
        if planned is None:
            return await self.forward(request)
        self.answers.remove(planned)
        _, status, reason, is_done = planned
        if is_done:
            reply = await self.forward(request)
            if reply is not None:
                await reply.whole()
        if status == 0:
            return None
        body = f'{{"error": {{"errors": [{{"reason": "{reason}"}}], "code": {status}, "message": "on purpose"}}}}'
        if "x-ms-version" in request.headers:  # Azure's client
            body = f"<?xml version='1.0'?><Error><Code>{reason}</Code><Message>on purpose</Message></Error>"
            headers = {"Content-Type": "application/xml", "x-ms-error-code": reason}
            return Reply(status, CIMultiDict(headers), body.encode())
        return Reply(status, CIMultiDict({"Content-Type": "application/json"}), body.encode())
