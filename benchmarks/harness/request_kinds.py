"""The kinds of requests that Google Cloud Storage and Azure bill apart, by the names that S3 has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from benchmarks.harness.s3_proxy import Request

_GCS_OBJECTS = "o"


def kind_of_gcs(request: Request) -> str:
    """One of `KINDS`: an upload in parts is one PUT, a look at an object's size a HEAD."""
    path, _, query_text = request.target.partition("?")
    query = parse_qs(query_text, keep_blank_values=True)
    if "/upload/" in path:
        return "PUT" if request.method == "POST" else "OTHER"
    is_of_object = not path.rstrip("/").endswith(f"/{_GCS_OBJECTS}")
    if request.method == "GET":
        return (
            "LIST" if not is_of_object else "GET" if query.get("alt") == ["media"] or "/download/" in path else "HEAD"
        )
    return {"DELETE": "DELETE", "POST": "COPY"}.get(request.method, "OTHER")


def kind_of_azure(request: Request) -> str:
    """One of `KINDS`: each block of an upload is a PUT, and so is the list of its blocks."""
    query = parse_qs(request.target.partition("?")[2], keep_blank_values=True)
    if request.method == "GET":
        return "LIST" if query.get("comp") == ["list"] else "GET"
    return request.method if request.method in ("PUT", "HEAD", "DELETE") else "OTHER"
