"""The registry of options and how given values become a `JobConfig`."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from varvite.changelog.restore.local import LocalRecovery
from varvite.changelog.working_stores.options import BackendSettings, MemoryShare
from varvite.changelog.working_stores.rocksdb.settings.memory_options import MANAGED, PREDEFINED
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.materializer.options.materializer_config import PERIODIC_ENABLED, MaterializerConfig
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.messages.protocol import decode_message, encode_message
from varvite.spark_integration.options import page as options_page
from varvite.spark_integration.options.job_config import JobConfig, resolve
from varvite.spark_integration.options.levels import option_key, session_level
from varvite.spark_integration.options.rocksdb_config import MemoryBudget
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import options_of
from varvite.storage.options.table import OptionLevel
from varvite.storage.transfer.download import DownloadPolicy
from varvite.storage.transfer.upload import UploadPolicy

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "configuration.md"
DIR = {"execution.checkpointing.dir": "/tmp/state"}


def config(*levels: dict[str, Any]) -> JobConfig:
    """The configuration of levels of given options, strongest first; the storage is set below them all."""
    return resolve([OPTIONS.read(f"level {i}", given) for i, given in enumerate([*levels, DIR])])


CONFIGS = (JobConfig, MaterializerConfig, RocksDBOptions, MemoryBudget)
SWITCHES = {PERIODIC_ENABLED.key, MANAGED.key, PREDEFINED.key}
"""Options that decide about other fields."""


def test_every_option_sets_a_field_and_every_field_of_a_job_has_an_option() -> None:
    set_by_options = {option.key for config in CONFIGS for option in options_of(config).values()}
    assert set_by_options | SWITCHES == set(OPTIONS.options)
    composed = {"storage_options", "rocksdb", "rocksdb_memory", "materializer"}
    assert {*options_of(JobConfig), *composed} == {f.name for f in dataclasses.fields(JobConfig)}


def test_every_default_is_in_its_own_range() -> None:
    for option in OPTIONS.options.values():
        if option.default is not None:
            assert option.read(option.default_text) == option.default


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == options_page.render(), (
        "run: python -m varvite.spark_integration.options.page > docs/reference/configuration.md"
    )


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [("10 min", 600_000), ("30s", 30_000), ("60000", 60_000), (600_000, 600_000), (timedelta(seconds=2), 2_000)],
)
def test_durations_are_read_as_in_flink(given: Any, milliseconds: int) -> None:
    level = {"state.changelog.periodic-materialize.interval": given}
    assert config(level).materializer.interval_ms == milliseconds


@pytest.mark.parametrize(
    ("given", "size"), [("5 mb", 5 << 20), ("1g", 1 << 30), ("4194304", 4 << 20), (1 << 20, 1 << 20)]
)
def test_sizes_are_read_as_in_flink(given: Any, size: int) -> None:
    level = {"state.backend.rocksdb.writebuffer.size": given, "state.backend.type": "rocksdb"}
    assert config(level).rocksdb.write_buffer_size_bytes == size
    assert config(level).backend_options(1, 1, 1).rocksdb["write_buffer_size_bytes"] == size


def test_the_limits_of_uploads_travel_to_the_state_workers_as_they_are() -> None:
    prefix = "state.changelog.dstl.dfs."
    given = {"upload.num-threads": 2, "upload.timeout": "3 s", "upload.max-attempts": 7, "upload.max-in-flight": "9 mb"}
    policy = config({prefix + key: value for key, value in given.items()}).upload_policy
    assert (policy.uploads, policy.hedge_after_s, policy.backoff.attempts, policy.in_flight_bytes) == (
        2,
        3.0,
        7,
        9 << 20,
    )
    assert decode_message(encode_message(policy), UploadPolicy) == policy


def test_the_early_upload_begins_where_flinks_does() -> None:
    assert config().preemptive_persist_threshold_bytes == 5 << 20


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state.changelog.periodic-materialize.interval", "10 parsecs"),
        ("state.changelog.periodic-materialize.interval", "-1"),
        ("state.changelog.enabled", "yes"),
        ("state.backend.type", "forst"),
        ("execution.checkpointing.num-retained", "1"),
        ("execution.checkpointing.num-retained", "many"),
        ("execution.checkpointing.dir", "  "),
        ("execution.state-recovery.path", "0"),
        ("execution.state-recovery.path", "chk 7"),
        ("execution.state-recovery.claim-mode", "CLAIM"),
        ("execution.state-recovery.claim-mode", "whatever"),
        ("pipeline.max-parallelism", "32769"),
        ("parallelism.default", True),
        ("checkpoint.inline-size-max", "5 mb"),
        ("state.changelog.dstl.dfs.preemptive-persist-threshold", "0 b"),
        ("state.backend.rocksdb.compression", "gzip"),
        ("pipeline.global-job-parameters", "no-colon"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=key):
        OPTIONS.read("code", {key: value})


@pytest.mark.parametrize(
    ("code", "query", "session", "enabled"),
    [
        (None, None, None, False),
        (None, None, "true", True),
        (None, "false", "true", False),
        (True, "false", "false", True),
        (False, "true", "true", False),
        (None, "true", None, True),
    ],
)
def test_the_changelog_switch_is_tri_state_at_every_level(code: Any, query: Any, session: Any, enabled: bool) -> None:
    key = "state.changelog.enabled"
    assert config({key: code}, {key: query}, {key: session}).changelog_enabled is enabled


def test_the_backend_and_the_changelog_switch_are_resolved_independently() -> None:
    got = config(
        {"state.backend.type": "rocksdb"}, {"state.changelog.enabled": "true", "state.backend.type": "hashmap"}
    )
    assert (got.backend_type, got.changelog_enabled) == ("rocksdb", True)


def test_a_deprecated_key_works_and_the_current_one_beats_it(caplog: pytest.LogCaptureFixture) -> None:
    old = OPTIONS.read("code", {"state.checkpoints.dir": "/old"})
    assert resolve([old]).storage_url == "/old"
    assert "execution.checkpointing.dir" in caplog.text
    both = OPTIONS.read("code", {"execution.checkpointing.dir": "/new", "state.checkpoints.dir": "/old"})
    assert resolve([both]).storage_url == "/new"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("state.changelog.enabeld", "state.changelog.enabled"),
        ("state.change-log.enabled", "state.changelog.enabled"),
        ("State.Changelog.Enabled", "state.changelog.enabled"),
        ("state.changelog.interval", "state.changelog.periodic-materialize.interval"),
        ("execution.checkpoint.dir", "execution.checkpointing.dir"),
        ("storage.options.key", "storage.option.<name>"),
    ],
)
def test_an_unknown_key_in_the_session_is_an_error_with_a_suggestion(key: str, meant: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        session_level({"spark.app.name": "x", f"spark.varvite.{key}": "secret-value"})
    assert f"did you mean spark.varvite.{meant}?" in str(caught.value)
    assert "secret-value" not in str(caught.value)


def test_an_unknown_key_like_none_points_at_the_page() -> None:
    with pytest.raises(InvalidRequestError, match=r"configuration\.md"):
        session_level({"spark.varvite.qqqq": "1"})


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("state.changelog.enabled", "state.changelog.enabled"),
        ("varvite.state.changelog.enabled", "state.changelog.enabled"),
        ("spark.varvite.parallelism.default", "parallelism.default"),
        ("execution.chekpointing.dir", "execution.chekpointing.dir"),
        ("storage.option.key", "storage.option.key"),
        ("compression", None),
        ("parquet.block.size", None),
        ("checkpointLocation", None),
    ],
)
def test_query_options_are_told_from_those_of_the_file_format(key: str, own: str | None) -> None:
    assert option_key(key) == own


def test_a_query_option_with_a_slip_in_its_first_part_is_an_error() -> None:
    with pytest.raises(InvalidRequestError, match=r"state\.changelog\.enabled"):
        option_key("stat.changelog.enabled")


def test_storage_options_are_merged_over_the_levels_and_typed() -> None:
    strong = {"storage.option.key": "123", "storage.option.anon": "false"}
    weak = {"storage.option.key": "weak", "storage.option.client_kwargs": '{"region_name": "eu"}'}
    got = config(strong, weak).storage_options
    assert got == {"key": "123", "anon": False, "client_kwargs": {"region_name": "eu"}}


def test_secrets_are_neither_in_the_repr_nor_in_errors() -> None:
    secret = {"storage.option.secret": "hunter2", "storage.option.client_kwargs": "{hunter2"}
    with pytest.raises(InvalidRequestError) as caught:
        OPTIONS.read("code", secret)
    assert "hunter2" not in str(caught.value)
    level = OPTIONS.read("code", {"storage.option.secret": "hunter2"})
    assert "hunter2" not in repr(level)
    assert "hunter2" not in repr(config({"storage.option.secret": "hunter2"}))


def test_a_relative_storage_location_is_of_the_drivers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process of the job gets it, and each has a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    for given, wanted in (
        ("here/../state", str(tmp_path / "state")),
        ("/var//state", "/var/state"),
        ("file:///var/state", "file:///var/state"),
        ("s3://bucket/state", "s3://bucket/state"),
    ):
        config = resolve([OPTIONS.read("code", {"execution.checkpointing.dir": given})])
        assert config.storage_url == config.materializer.storage_url == wanted
    with pytest.raises(InvalidRequestError, match="write s3://bucket/state"):
        resolve([OPTIONS.read("code", {"execution.checkpointing.dir": "s3:/bucket/state"})])


def test_the_storage_location_is_required() -> None:
    with pytest.raises(InvalidRequestError, match=r"execution\.checkpointing\.dir"):
        resolve([OptionLevel("code", {}, {})])


@pytest.mark.parametrize(
    "contradiction",
    [
        {"parallelism.default": 8, "pipeline.max-parallelism": 4},
        {"parallelism.default": 64, "pipeline.max-parallelism": 32},
    ],
)
def test_options_that_contradict_each_other_are_an_error(contradiction: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        config(contradiction)


def test_materialization_by_the_clock_can_be_switched_off() -> None:
    got = config({"state.changelog.periodic-materialize.enabled": "false"})
    assert got.materializer.interval_ms is None
    assert got.materializer.log_batches is not None


def test_policies_carry_the_options() -> None:
    got = config(
        {
            "execution.checkpointing.num-retained": 3,
            "checkpoint.full-every": 5,
            "state.changelog.dstl.dfs.upload.timeout": "250 ms",
            "state.changelog.dstl.dfs.upload.max-attempts": 7,
            "state.changelog.dstl.dfs.upload.num-threads": 2,
        }
    )
    assert (got.commit_policy.retained, got.commit_policy.full_every) == (3, 5)
    assert (got.upload_policy.hedge_after_s, got.upload_policy.backoff.attempts, got.upload_policy.uploads) == (
        0.25,
        7,
        2,
    )


def test_backend_options_are_complete_for_rocksdb_and_empty_for_hashmap() -> None:
    assert config({"state.backend.type": "hashmap"}).backend_options(2, 4, 1) == BackendSettings()
    given = config({"state.backend.type": "rocksdb"}).backend_options(2, 4, 1)
    assert set(given.rocksdb) == set(options_of(RocksDBOptions))
    assert given.memory == MemoryShare(128 << 20, 0.5, 2)


def test_the_inline_budget_is_shared_by_all_tasks() -> None:
    gather = "state.changelog.dstl.dfs.batch.persist-size-threshold"
    assert config({"checkpoint.inline-size-max": "1 mb", gather: "0"}).inline_bytes_per_task(4) == 256 << 10
    assert config({"checkpoint.inline-size-max": "1 mb", gather: "2 mb"}).inline_bytes_per_task(4) == 512 << 10


def test_job_parameters_are_read_from_text_and_from_a_mapping() -> None:
    key = "pipeline.global-job-parameters"
    assert config({key: "a:1, url:http://x"}).job_parameters == {"a": "1", "url": "http://x"}
    assert config({key: {"a": 1}}).job_parameters == {"a": "1"}
    assert config().job_parameters == {}


def test_local_recovery_is_off_and_has_flinks_older_names() -> None:
    assert config({}).local_recovery is None
    for key, current in OPTIONS.current_keys.items():
        if current == "execution.state-recovery.from-local":
            assert config({key: "true"}).local_recovery == LocalRecovery()
    given = {
        "execution.state-recovery.from-local": "true",
        "taskmanager.state.local.root-dirs": "/mnt/a, file:///mnt/b",
        "execution.checkpointing.local-backup.flush-interval": "5 s",
        "execution.checkpointing.local-backup.max-unused-age": "2 h",
        "execution.checkpointing.local-backup.max-unused-size": "1 gb",
    }
    policy = config(given).local_recovery
    assert policy == LocalRecovery(("/mnt/a", "/mnt/b"), 5_000, 7_200_000, 1 << 30)
    assert decode_message(encode_message(policy), LocalRecovery) == policy
    for path in ("here", "/a,", "s3://bucket/a"):
        with pytest.raises(InvalidRequestError, match=r"local-backup\.dirs"):
            config({"execution.checkpointing.local-backup.dirs": path})


def test_the_limits_of_a_restore_are_options() -> None:
    assert config({}).download_policy == DownloadPolicy()
    given = {
        "execution.state-recovery.download.num-threads": 3,
        "execution.state-recovery.download.max-in-flight": "2 mb",
    }
    policy = config(given).download_policy
    assert policy == DownloadPolicy(3, 2 << 20)
    assert decode_message(encode_message(policy), DownloadPolicy) == policy
