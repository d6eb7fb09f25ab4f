"""Fixtures of the simulations of the materializer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A job that commits, and materializers beside it."""
    world = World(tmp_path)
    yield world
    world.close()
