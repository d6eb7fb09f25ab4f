"""`CheckpointConfig`: what has a meaning becomes an option, what has none warns or raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from varvite.changelog.api.time_spans import Duration
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.writer import trigger_every
from varvite.spark_integration.options.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from varvite.spark_integration.options.checkpoint_storage import (
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from varvite.storage.errors import InvalidRequestError


class Settings(dict[str, Any]):
    """Settings of an environment."""

    def configure(self, key: str, value: Any) -> None:
        self.update(OPTIONS.read("code", {key: value}).values)


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def config(settings: Settings) -> CheckpointConfig:
    return CheckpointConfig(settings.configure, settings.get, lambda: True)


def test_locations_of_every_kind(config: CheckpointConfig, settings: Settings, tmp_path: Path) -> None:
    assert config.get_checkpoint_storage() is None
    for location in ("s3://bucket/a", tmp_path, FileSystemCheckpointStorage(tmp_path)):
        config.set_checkpoint_storage(location)
        path = location.get_checkpoint_path() if isinstance(location, FileSystemCheckpointStorage) else str(location)
        assert settings == {"execution.checkpointing.dir": path}
        assert config.get_checkpoint_storage() == FileSystemCheckpointStorage(path)
    for wrong in (None, ""):
        with pytest.raises(InvalidRequestError):
            FileSystemCheckpointStorage(wrong)  # type: ignore[arg-type]


def test_the_job_managers_storage_is_a_directory_for_a_while_and_says_so(
    config: CheckpointConfig, settings: Settings
) -> None:
    storage = JobManagerCheckpointStorage()
    with pytest.warns(UserWarning, match="until the driver ends"):
        config.set_checkpoint_storage(storage)
    directory = Path(settings["execution.checkpointing.dir"])
    assert directory.is_dir()
    directory.rmdir()
    config.set_checkpoint_storage(JobManagerCheckpointStorage("/kept"))
    assert settings["execution.checkpointing.dir"] == "/kept"


def test_the_job_managers_storage_is_refused_on_several_machines(settings: Settings) -> None:
    config = CheckpointConfig(settings.configure, settings.get, lambda: False)
    with pytest.raises(InvalidRequestError, match="local"):
        config.set_checkpoint_storage(JobManagerCheckpointStorage())
    config.set_checkpoint_storage(JobManagerCheckpointStorage("s3://bucket/kept"))
    assert settings == {"execution.checkpointing.dir": "s3://bucket/kept"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: FileSystemCheckpointStorage("/x", file_state_size_threshold=1024),
        lambda: FileSystemCheckpointStorage("/x", write_buffer_size=4096),
        lambda: JobManagerCheckpointStorage(max_state_size=5 << 20),
    ],
    ids=["threshold", "buffer", "state size"],
)
def test_sizes_without_effect_are_warned_of(make: Any) -> None:
    with pytest.warns(UserWarning, match="no effect") as caught:
        make()
    assert caught[0].filename == __file__


def test_the_interval_is_an_option_and_becomes_the_trigger(config: CheckpointConfig, settings: Settings) -> None:
    assert config.get_checkpoint_interval() == -1
    config.set_checkpoint_interval(2_500)
    assert settings == {"execution.checkpointing.interval": 2_500}
    assert config.get_checkpoint_interval() == 2_500
    assert trigger_every(2_500) == {"processingTime": "2500 milliseconds"}
    assert trigger_every(None) == {}
    with pytest.raises(InvalidRequestError):
        config.set_checkpoint_interval(0)


def test_what_varvite_does_anyway_is_accepted_without_a_word(config: CheckpointConfig, settings: Settings) -> None:
    config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE).set_max_concurrent_checkpoints(1)
    config.set_tolerable_checkpoint_failure_number(0).set_min_pause_between_checkpoints(0)
    config.enable_unaligned_checkpoints(False)
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    assert settings == {}
    assert config.is_checkpointing_enabled()
    assert not config.is_unaligned_checkpoints_enabled()
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE, "what was set, although it is stronger"
    assert (config.get_max_concurrent_checkpoints(), config.get_tolerable_checkpoint_failure_number()) == (1, 0)
    assert config.get_min_pause_between_checkpoints() == 0
    kept = config.get_externalized_checkpoint_retention()
    assert kept is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION


@pytest.mark.filterwarnings("ignore:.*no effect in varvite")
def test_getters_answer_with_what_was_set_and_else_as_pyflink(settings: Settings) -> None:
    kept: dict[str, Any] = {}
    config = CheckpointConfig(settings.configure, settings.get, lambda: True, kept)
    for name, default, value in (
        ("checkpointing_mode", CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE),
        ("checkpoint_timeout", 600_000, 300_000),
        ("min_pause_between_checkpoints", 0, 100_000),
        ("max_concurrent_checkpoints", 1, 2),
        ("tolerable_checkpoint_failure_number", 0, 2),
        ("alignment_timeout", Duration.of_millis(0), Duration.of_seconds(2)),
        ("aligned_checkpoint_timeout", Duration.of_seconds(2), Duration.of_millis(5)),
    ):
        assert getattr(config, f"get_{name}")() == default
        assert getattr(config, f"set_{name}")(value) is config
        again = CheckpointConfig(settings.configure, settings.get, lambda: True, kept)
        assert getattr(again, f"get_{name}")() == value
    assert config.is_fail_on_checkpointing_errors()
    assert not config.set_fail_on_checkpointing_errors(False).is_fail_on_checkpointing_errors()
    assert config.enable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert config.set_force_unaligned_checkpoints().is_force_unaligned_checkpoints()
    assert config.is_externalized_checkpoints_enabled()
    deleted = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    config.set_externalized_checkpoint_retention(retention_mode=deleted)
    assert not config.is_externalized_checkpoints_enabled()
    storage = FileSystemCheckpointStorage("file:///a/b/")
    assert (storage.get_checkpoint_path(), storage.get_min_file_size_threshold()) == ("file:///a/b", 20480)


@pytest.mark.parametrize(
    "call",
    [
        lambda config: config.set_max_concurrent_checkpoints(2),
        lambda config: config.set_tolerable_checkpoint_failure_number(3),
        lambda config: config.set_min_pause_between_checkpoints(500),
        lambda config: config.set_checkpoint_timeout(60_000),
        lambda config: config.enable_unaligned_checkpoints(),
        lambda config: config.set_externalized_checkpoint_retention(
            ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
        ),
    ],
    ids=["concurrent", "failures", "pause", "timeout", "unaligned", "retention"],
)
def test_what_varvite_does_not_do_is_warned_of_at_its_line(
    config: CheckpointConfig, settings: Settings, call: Any
) -> None:
    with pytest.warns(UserWarning, match="no effect in varvite; ") as caught:
        assert call(config) is config
    assert caught[0].filename == __file__
    assert settings == {}


def test_checkpoints_cannot_be_switched_off(config: CheckpointConfig) -> None:
    with pytest.raises(InvalidRequestError, match="remove the call"):
        config.disable_checkpointing()
    with pytest.raises(InvalidRequestError, match="CheckpointingMode"):
        config.set_checkpointing_mode("exactly_once")  # type: ignore[arg-type]
