"""A base that was written as a whole, as by an earlier varvite, is later rewritten some of it at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import CONFIG, World
from tests.jobs.state_model import BatchChanges, random_text
from varvite.materializer.fold import parts as fold_parts
from varvite.materializer.options.materializer_config import MaterializerConfig

if TYPE_CHECKING:
    from pathlib import Path

KEYS, VALUE_BYTES = 40_000, 200


@pytest.mark.long
def test_a_base_in_one_file_comes_apart_when_it_was_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of it is stored twice each time, as long as the job lives."""
    rng = random.Random(5)
    world = World(tmp_path, parallelism=1)
    sidecar = world.sidecar(replace(CONFIG, space_ratio=MaterializerConfig.space_ratio))

    def commit(keys: list[int]) -> None:
        texts = {f"key {key}": random_text(rng, VALUE_BYTES) for key in keys}
        world.job.commit(BatchChanges(events={key: (True, [text]) for key, text in texts.items()}))
        world.job.models = dict(list(world.job.models.items())[-3:])

    with monkeypatch.context() as whole:
        whole.setattr(fold_parts, "PARTS_MAX", 1)
        commit(list(range(KEYS)))
        commit([0])
        assert sidecar.fold()
    for _ in range(13):
        commit(rng.sample(range(KEYS), KEYS // 20))
        commit([0])
        sidecar.fold()
    base, *folds = [event.uploaded_bytes for event in sidecar.materialized]
    rewritten = [i for i, uploaded in enumerate(folds) if uploaded > base / 2]
    assert len(rewritten) == 1, [f"{u / base:.2f}" for u in folds]
    assert [uploaded for uploaded in folds[rewritten[0] + 1 :] if uploaded > base / 9]
    world.check()
    world.close()
