"""`Configuration` as PyFlink has it, and what becomes of settings of Flink's runtime."""

from __future__ import annotations

import pyarrow as pa
import pytest

from varvite.changelog.api.time_spans import Duration
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.options.checkpoint_config import CheckpointingMode, ExternalizedCheckpointRetention
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
from varvite.spark_integration.options.flink_keys import without_flinks_keys
from varvite.spark_integration.options.job_config import levels_of_batch_job, resolve
from varvite.spark_integration.plan.job import is_batch_job
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.transformations import CollectionSource, DataFrameSource
from varvite.storage.errors import InvalidRequestError


def test_settings_are_read_as_what_they_are() -> None:
    made = Configuration().set_string("a", "x").set_integer("b", 2).set_float("c", 0.5).set_boolean("d", True)
    assert (made.get_string("a", None), made.get_integer("b", 0)) == ("x", 2)
    assert (made.get_float("c", 0), made.get_boolean("d", False)) == (0.5, True)
    assert (made.get_string("z", "y"), made.get_integer("z", 1), made.get_boolean("z", True)) == ("y", 1, True)
    copy = Configuration(made)
    assert copy.remove_config("a")
    assert not copy.remove_config("a")
    assert copy.key_set() == {"b", "c", "d"}
    assert made.contains_key("a")


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(None)  # type: ignore[arg-type]


KEYS_OF_FLINK = """
    execution.checkpointing.timeout execution.checkpointing.min-pause execution.checkpointing.unaligned.enabled
    execution.checkpointing.savepoint-dir execution.checkpointing.data-inline-threshold
    execution.checkpointing.write-buffer-size execution.checkpointing.file-merging.enabled
    execution.checkpointing.snapshot-compression execution.checkpointing.aligned-checkpoint-timeout
    execution.checkpointing.max-concurrent-checkpoints execution.checkpointing.tolerable-failed-checkpoints
    state.backend.incremental state.savepoints.dir state.storage.fs.write-buffer-size state.storage.fs.memory-threshold
    state.backend.rocksdb.localdir state.backend.rocksdb.timer-service.factory
    state.backend.rocksdb.checkpoint.transfer.thread.num state.backend.rocksdb.memory.high-prio-pool-ratio
    state.backend.rocksdb.compaction.style state.backend.rocksdb.use-bloom-filter execution.buffer-timeout
    pipeline.operator-chaining pipeline.operator-chaining.enabled pipeline.auto-watermark-interval
    pipeline.object-reuse pipeline.name pipeline.closure-cleaner-level table.exec.state.ttl s3.endpoint
    fs.default-scheme web.submit.enable security.ssl.internal.enabled io.tmp.dirs blob.server.port client.timeout
    heartbeat.interval classloader.resolve-order restart-strategy restart-strategy.type python.execution-mode
    taskmanager.numberOfTaskSlots
""".split()  # noqa: SIM905  words


def test_flinks_keys_are_taken_with_one_warning_that_lists_those_without_effect() -> None:
    made = Configuration().set_integer("parallelism.default", 3)
    for key in KEYS_OF_FLINK:
        made.set_string(key, "7")
    env = environment()
    with pytest.warns(UserWarning, match="no effect in varvite") as caught:
        assert env.configure(made).get_parallelism() == 3
    assert len(caught) == 1
    assert caught[0].filename == __file__
    listed = str(caught[0].message).partition(": ")[2].partition(";")[0].split(", ")
    assert listed == sorted(KEYS_OF_FLINK)
    assert set(env.code_level().values) == {"parallelism.default"}


@pytest.mark.parametrize(
    "wrong",
    ["default.parallelism", "execution.checkpointing.intervals", "state.backend.rocksdb.writebuffer.sizes", "tables.x"],
)
def test_a_key_that_nobody_has_is_an_error(wrong: str) -> None:
    for settings in (Configuration().set_string(wrong, "3"), {wrong: "3"}):
        with pytest.raises(InvalidRequestError, match="no option of varvite"):
            environment().configure(settings)
    with pytest.raises(InvalidRequestError, match="no option of varvite"):
        environment().configure(wrong, "3")


def test_settings_that_ask_for_what_varvite_does_anyway_are_taken_without_a_word() -> None:
    env = environment().configure(
        {
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.max-concurrent-checkpoints": 1,
            "state.backend.incremental": True,
            "pipeline.name": None,
        }
    )
    assert not env.code_level().values


@pytest.mark.parametrize(
    ("key", "current"),
    [
        ("metrics.reporter.prom.port", "metrics.reporter.prom.port"),
        ("spark.varvite.metrics.reporter.prom.host", "metrics.reporter.prom.host"),
        ("taskmanager.state.local.root-dirs", "execution.checkpointing.local-backup.dirs"),
    ],
)
def test_a_setting_that_varvite_has_counts_also_beside_those_of_flinks_runtime(key: str, current: str) -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    given = "/9250" if current.endswith("dirs") else "9250"
    made = Configuration().set_string(key, given).set_string("metrics.reporter.prom.class", "of Flink")
    with pytest.warns(UserWarning, match="taskmanager.numberOfTaskSlots"):
        env.configure(made.set_string("taskmanager.numberOfTaskSlots", "4"))
    assert set(env.code_level().values) == {current}


def test_no_setting_of_varvites_is_taken_for_one_of_flinks_runtime() -> None:
    ours = dict.fromkeys((*OPTIONS.options, *OPTIONS.current_keys), "")
    assert without_flinks_keys(ours, 1) == ours


def test_getters_answer_keys_without_effect_as_if_they_were_set_one_by_one() -> None:
    """As in a test of PyFlink's: the getters answered their defaults."""
    key = "execution.checkpointing."
    settings = {
        "pipeline.operator-chaining": "false", "execution.buffer-timeout": "1 min", "pipeline.object-reuse": True,
        "pipeline.auto-watermark-interval": 300, "state.savepoints.dir": "/saved", f"{key}timeout": "12000",
        f"{key}min-pause": "1 s", f"{key}max-concurrent-checkpoints": 3, f"{key}tolerable-failed-checkpoints": "2",
        f"{key}unaligned.enabled": "true", f"{key}unaligned.forced": True, f"{key}aligned-checkpoint-timeout": "2 s",
        f"{key}mode": "at_least_once", f"{key}externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    }  # fmt: skip
    env = environment()
    with pytest.warns(UserWarning, match="no effect"):
        env.configure(Configuration.from_dict(settings))
    config, of_execution = env.get_checkpoint_config(), env.get_config()
    assert (env.is_chaining_enabled(), env.get_buffer_timeout()) == (False, 60_000)
    assert env.get_default_savepoint_directory() == "/saved"
    assert (of_execution.is_object_reuse_enabled(), of_execution.get_auto_watermark_interval()) == (True, 300)
    assert (config.get_checkpoint_timeout(), config.get_min_pause_between_checkpoints()) == (12_000, 1000)
    assert (config.get_max_concurrent_checkpoints(), config.get_tolerable_checkpoint_failure_number()) == (3, 2)
    assert (config.is_unaligned_checkpoints_enabled(), config.is_force_unaligned_checkpoints()) == (True, True)
    assert config.get_alignment_timeout() == Duration.of_seconds(2)
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    with pytest.warns(UserWarning, match="no effect"):
        env.configure({f"{key}mode": "twice", "execution.buffer-timeout": "soon"})
    assert (env.get_buffer_timeout(), env.get_checkpointing_mode()) == (60_000, CheckpointingMode.AT_LEAST_ONCE)


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_the_runtime_mode_is_an_option_wherever_it_is_set(mode: RuntimeExecutionMode) -> None:
    key = "execution.runtime-mode"
    for call in (
        lambda env: env.set_runtime_mode(mode),
        lambda env: env.configure(Configuration().set_string(key, mode.name)),
        lambda env: env.configure(key, mode.name.lower()),
        lambda env: env.configure({f"spark.varvite.{key}": mode.name}),
    ):
        env = environment()
        assert call(env) is env
        assert env.code_level().values == {key: mode.name.lower()}
    with pytest.raises(InvalidRequestError, match=r"RuntimeExecutionMode\.BATCH"):
        environment().set_runtime_mode("BATCH")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=key):
        environment().configure(key, "batched")


def test_the_mode_follows_from_the_option_and_the_sources() -> None:
    """Flink's rule: BATCH refuses a source that does not end, AUTOMATIC is BATCH if all sources end."""
    ends = CollectionSource(elements=elements_of(None), table=pa.table({}))
    goes_on = DataFrameSource(elements=elements_of(None), dataframe=None, event_time=None)  # type: ignore[arg-type]
    assert not is_batch_job("streaming", [ends])
    assert is_batch_job("batch", [ends, ends])
    assert is_batch_job("automatic", [ends])
    assert not is_batch_job("automatic", [ends, goes_on])
    with pytest.raises(InvalidRequestError, match="a source does not end"):
        is_batch_job("batch", [ends, goes_on])


def test_a_job_in_batch_mode_begins_without_state_and_keeps_none() -> None:
    code = OPTIONS.read(
        "code",
        {"execution.checkpointing.dir": "s3://kept", "materializer.mode": "embedded", "parallelism.default": 3,
         "storage.option.key": "secret", "storage.encryption.key-provider": "environment"},
    )  # fmt: skip
    config = resolve(levels_of_batch_job([code], "/tmp/of-the-run"))
    assert config.storage_url == "/tmp/of-the-run"
    assert (config.materializer_mode, config.parallelism, config.storage_options) == ("off", 3, {})
    assert config.encryption_key_provider is None
    start = OPTIONS.read("session conf", {"execution.state-recovery.path": "latest"})
    with pytest.raises(InvalidRequestError, match=r"execution\.state-recovery\.path"):
        levels_of_batch_job([code, start], "/tmp/of-the-run")


def test_a_checkpoint_interval_is_a_number_of_milliseconds() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    assert env.enable_checkpointing(500).get_checkpoint_interval() == 500
    for wrong in (0, "1 s"):
        with pytest.raises(InvalidRequestError):
            env.enable_checkpointing(wrong)  # type: ignore[arg-type]
