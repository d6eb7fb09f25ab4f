"""Every life of a harness."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.counting_harness import BACKENDS


@pytest.fixture(params=[(name, on) for name in BACKENDS for on in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def life(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Directory of the state."""
    backend, changelog = request.param
    return {"backend": BACKENDS[backend], "changelog": changelog}
