"""Every life of a harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.counting_harness import BACKENDS
from tests.stores.working_stores import quick_directory


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary directories lie in memory."""
    with quick_directory() as directory:
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        yield directory


@pytest.fixture(params=[(name, on) for name in BACKENDS for on in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def life(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Directory of the state."""
    backend, changelog = request.param
    return {"backend": BACKENDS[backend], "changelog": changelog}
