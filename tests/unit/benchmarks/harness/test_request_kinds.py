"""The kinds of requests that Google and Azure bill apart."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from benchmarks.harness.request_kinds import kind_of_azure, kind_of_gcs
from benchmarks.harness.s3_proxy import Request


def request(text: str) -> Request:
    method, target = text.split(" ")
    return Request(method, target, CIMultiDict(), b"")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("POST /upload/storage/v1/b/bucket/o?uploadType=multipart&ifGenerationMatch=0", "PUT"),
        ("POST /upload/storage/v1/b/bucket/o?uploadType=resumable", "PUT"),
        ("PUT /upload/resumable/1", "OTHER"),
        ("GET /storage/v1/b/bucket/o?prefix=a", "LIST"),
        ("GET /storage/v1/b/bucket/o/a%2Fo?alt=media", "GET"),
        ("GET /download/storage/v1/b/bucket/o/a", "GET"),
        ("GET /storage/v1/b/bucket/o/a%2Fo?fields=size", "HEAD"),
        ("DELETE /storage/v1/b/bucket/o/a", "DELETE"),
    ],
)
def test_requests_to_google(text: str, kind: str) -> None:
    assert kind_of_gcs(request(text)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("PUT /account/container/a", "PUT"),
        ("PUT /account/container/a?comp=block&blockid=x", "PUT"),
        ("GET /account/container?restype=container&comp=list", "LIST"),
        ("GET /account/container/a", "GET"),
        ("HEAD /account/container/a", "HEAD"),
        ("DELETE /account/container/a", "DELETE"),
        ("POST /account/container?comp=batch", "OTHER"),
    ],
)
def test_requests_to_azure(text: str, kind: str) -> None:
    assert kind_of_azure(request(text)) == kind
