"""`Configuration` as PyFlink has it, and what becomes of settings of Flink's runtime."""

from __future__ import annotations

import pytest

from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
from varvite.spark_integration.options.flink_keys import without_flinks_keys
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
            "execution.runtime-mode": "streaming",
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


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def test_modes_with_other_results_are_refused_wherever_they_are_set(mode: RuntimeExecutionMode) -> None:
    """PyFlink's reduce gives only each key's last result over a collection; a program must not find that out later."""
    key = "execution.runtime-mode"
    for call in (
        lambda env: env.set_runtime_mode(mode),
        lambda env: env.configure(Configuration().set_string(key, mode.name)),
        lambda env: env.configure(key, mode.name.lower()),
        lambda env: env.configure({f"spark.varvite.{key}": mode.name}),
    ):
        with pytest.raises(InvalidRequestError, match=mode.name):
            call(environment())
    env = environment()
    assert env.set_runtime_mode(RuntimeExecutionMode.STREAMING) is env
    assert env.configure(key, "STREAMING") is env


def test_a_checkpoint_interval_is_a_number_of_milliseconds() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    assert env.enable_checkpointing(500).get_checkpoint_interval() == 500
    for wrong in (0, "1 s"):
        with pytest.raises(InvalidRequestError):
            env.enable_checkpointing(wrong)  # type: ignore[arg-type]
