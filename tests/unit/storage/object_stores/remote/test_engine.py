"""The choice between the clients of S3."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.remote import engine
from varvite.storage.object_stores.remote.engine import dialect_of, packages_of

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "s3://bucket/a"
PLAIN = {"key": "k", "secret": "s3cr3t", "endpoint_url": "http://127.0.0.1:1"}
PROFILE = {**PLAIN, "profile": "p"}


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these packages alone be installed."""

    def only(*packages: str) -> None:
        monkeypatch.setattr(engine, "_is_installed", lambda package: package in packages)

    return only


def chosen(options: dict[str, str]) -> str:
    """The client of a store, which is also the one that is imported ahead."""
    library = dialect_of(URL, options, exclusive_create=False).library
    assert packages_of(URL, options) == (library,)
    return library


def test_obstore_is_the_default_where_it_is_installed(install: Callable[..., None]) -> None:
    install("obstore", "s3fs")
    assert chosen(PLAIN) == "obstore"
    assert chosen({**PLAIN, "engine": "s3fs"}) == "s3fs"
    install("s3fs")
    assert chosen(PLAIN) == "s3fs"


def test_what_obstore_cannot_do_is_done_by_s3fs_and_logged(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    install("obstore", "s3fs")
    with caplog.at_level(logging.INFO):
        assert chosen(PROFILE) == "s3fs"
    assert "s3://bucket/a is opened with s3fs, because obstore does not support the option profile" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_without_s3fs_it_is_an_error_that_says_so(install: Callable[..., None]) -> None:
    install("obstore")
    with pytest.raises(InvalidRequestError, match=r"the option profile, and s3fs is not installed; pip install 'varv"):
        chosen(PROFILE)


def test_an_engine_that_is_chosen_is_not_replaced(install: Callable[..., None]) -> None:
    install("obstore", "s3fs")
    with pytest.raises(InvalidRequestError, match=r"does not support the option profile.*engine=s3fs"):
        chosen({**PROFILE, "engine": "obstore"})
    install("s3fs")
    with pytest.raises(InvalidRequestError, match=r"'obstore', which is not installed; pip install 'varvite\[s3\]'"):
        chosen({**PLAIN, "engine": "obstore"})
    with pytest.raises(InvalidRequestError, match="engine is 'boto'; it may be 'obstore' or 's3fs'"):
        chosen({**PLAIN, "engine": "boto"})


def test_other_filesystems_have_no_engine() -> None:
    assert packages_of("gs://bucket/a", {}) == ("gcsfs",)
    assert packages_of("abfss://container@account.dfs.core.windows.net/a", {}) == ("adlfs",)
    assert packages_of("file:///a", {}) == ()
    assert dialect_of("local:///a", {}, exclusive_create=False).library == "fsspec"
