"""Fixtures of the tests of sidecar processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A storage with one committing job; its sidecars end with the test."""
    site = Site(tmp_path)
    yield site
    site.close()
