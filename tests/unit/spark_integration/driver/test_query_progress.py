"""A run's progress when the location cannot be made, or has changed since it was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.simulation.system.spark.cached_location import CachedCheckpoint
from tests.unit.changelog.commit.test_base_decision import commit
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.changelog.commit.ownership import ChainOwner
from varvite.spark_integration.driver.query_progress import QueryProgress
from varvite.storage.errors import CorruptDataError, DidNotHappenError, LineageError
from varvite.storage.format.records import Commit, InputPosition

OLD = commit(0, 2)
"""Of a version that keeps no position."""
NEWEST = replace(commit(1, 3, OLD), position=InputPosition(offsets="v1\n{}\n10"))
DONE = SinkCommit(NEWEST.batch, NEWEST.seq, NEWEST.token)


class Chain:
    """In the place of `ChainOwner`."""

    def __init__(self, parent: Commit | CorruptDataError) -> None:
        self._parent = parent

    def newest(self) -> Commit:
        return NEWEST

    def restore_request(self) -> None:
        return None

    def find_parent(self, commit: Commit) -> Commit | None:
        assert commit == NEWEST
        return self._parent if isinstance(self._parent, Commit) else None

    def parent_of(self, commit: Commit) -> Commit:
        assert commit == NEWEST
        if isinstance(self._parent, CorruptDataError):
            raise self._parent
        return self._parent


def progress(files: dict[str, bytes]) -> QueryProgress:
    location: Any = SimpleNamespace(files=files)
    query: Any = None
    note: Any = SimpleNamespace(read=lambda: None)
    return QueryProgress(CachedCheckpoint(location, lambda _: None), query, note)


def chain(parent: Commit | CorruptDataError = OLD) -> ChainOwner:
    return cast("ChainOwner", Chain(parent))


def test_an_empty_location_is_made() -> None:
    files: dict[str, bytes] = {}
    progress(files).settle(chain(), DONE)
    assert files["offsets/1"] == b"v1\n{}\n10"
    assert "commits/1" in files


def test_another_batch_than_the_location_was_made_for_is_an_error() -> None:
    query = progress({})
    query.settle(chain(), DONE)
    with pytest.raises(DidNotHappenError, match=r"Spark begins with batch 5.*made for batch 2.*End that run"):
        query.first(5)


def test_an_empty_location_is_an_error_if_an_open_batch_follows_a_commit_without_a_position() -> None:
    """Spark would begin a new query, whose batch 0 has other rows."""
    files: dict[str, bytes] = {}
    with pytest.raises(LineageError, match=r"batch 1 \(seq 3\).*bring the location back, or choose"):
        progress(files).settle(chain(), None)
    assert files == {}


def test_a_parent_that_cannot_be_read_says_so() -> None:
    with pytest.raises(CorruptDataError, match="flipped"):
        progress({}).settle(chain(CorruptDataError("flipped", object_name="chain/2")), None)


@pytest.mark.parametrize("is_done", [True, False])
def test_sources_are_compared_with_the_position_that_the_query_goes_on_from(is_done: bool) -> None:
    """If the batch is executed again, its rows have to be there, too."""
    parent = replace(OLD, position=InputPosition(offsets="v1\n{}\n5"))
    run, compared = progress({}), list[Commit]()
    sources: Any = SimpleNamespace(check=compared.append)
    run.sources = sources
    run.settle(chain(parent), DONE if is_done else None)
    assert compared == [NEWEST if is_done else parent]
