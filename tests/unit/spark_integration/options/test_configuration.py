"""`Configuration` as PyFlink has it, and what becomes of settings of Flink's runtime."""

from __future__ import annotations

import pytest

from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
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


def test_settings_of_flinks_runtime_are_left_out_and_others_must_exist() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    made = Configuration().set_string("python.execution-mode", "thread").set_integer("parallelism.default", 3)
    assert env.configure(made).get_parallelism() == 3
    with pytest.raises(InvalidRequestError, match="no option of varvite"):
        env.configure(Configuration().set_string("default.parallelism", "3"))


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
    env.configure(made.set_string("taskmanager.numberOfTaskSlots", "4"))
    assert set(env.code_level().values) == {current}


def test_no_setting_of_varvites_is_taken_for_one_of_flinks_runtime() -> None:
    made = Configuration()
    for key in (*OPTIONS.options, *OPTIONS.current_keys):
        made.set_string(key, "")
    assert set(made.of_varvite()) == {*OPTIONS.options, *OPTIONS.current_keys}


def test_batch_mode_is_refused() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    assert env.set_runtime_mode(RuntimeExecutionMode.STREAMING) is env
    with pytest.raises(InvalidRequestError, match="BATCH"):
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def test_a_checkpoint_interval_is_a_number_of_milliseconds() -> None:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    assert env.enable_checkpointing(500).get_checkpoint_interval() == 500
    for wrong in (0, "1 s"):
        with pytest.raises(InvalidRequestError):
            env.enable_checkpointing(wrong)  # type: ignore[arg-type]
