"""A package that a URL needs and that is not installed: the error has the line to type."""

from __future__ import annotations

import sys

import pytest

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.open import open_store


def test_s3_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pytest.importorskip("fsspec.registry")
    for protocol in ("s3", "s3a"):
        monkeypatch.delitem(registry._registry, protocol, raising=False)
    for package in ("s3fs", "obstore"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[s3\]'"):
        open_store("s3://bucket/x")


def test_google_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("gcsfs", "gcsfs.core"):
        monkeypatch.setitem(sys.modules, package, None)
    for protocol in ("gs", "gcs"):
        with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[gcs\]'"):
            open_store(f"{protocol}://bucket/x")


def test_azure_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    for protocol in ("az", "abfs", "abfss"):
        with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[azure\]'"):
            open_store(f"{protocol}://container/x")
    with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[azure\]'"):
        open_store("abfss://container@account.dfs.core.windows.net/x")
