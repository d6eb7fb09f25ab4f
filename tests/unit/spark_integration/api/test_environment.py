"""Settings and hints of PyFlink's environment and streams: what has a meaning here has it, all else is logged."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from varvite.changelog.types.factory import Types
from varvite.common import (
    Configuration,
    ExecutionConfig,
    ExecutionMode,
    InputDependencyConstraint,
    RestartStrategies,
)
from varvite.datastream import (
    DataStream,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointCleanup,
    KeyedProcessFunction,
    MemorySize,
    OutputTag,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TimeCharacteristic,
)
from varvite.spark_integration.api.job_execution import job_of, queries_of
from varvite.spark_integration.connectors.sources.collection import collection_source
from varvite.spark_integration.plan.operator import elements_of
from varvite.storage.errors import InvalidRequestError


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(None).set_parallelism(4)  # type: ignore[arg-type]


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    kind = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
    return DataStream(env, collection_source(elements_of(kind), [("a", 1, 0.5)]))


HINTS: dict[str, tuple[Any, ...]] = {
    "shuffle": (), "rebalance": (), "rescale": (), "forward": (), "start_new_chain": (), "disable_chaining": (),
    "set_description": ("text",), "set_uid_hash": ("ab",), "set_buffer_timeout": (5,), "slot_sharing_group": ("g",),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS)
def test_hints_change_nothing_are_logged_and_are_refused_on_keyed_streams(
    pairs: DataStream, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert getattr(pairs, hint)(*HINTS[hint]) is pairs
    assert f"{hint}(" in caplog.text
    assert "no effect" in caplog.text
    with pytest.raises(InvalidRequestError, match="KeyedStream, which is no operator"):
        getattr(pairs.key_by(lambda pair: pair[0]), hint)(*HINTS[hint])


def test_streams_answer_questions_about_themselves(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    assert pairs.get_type() == Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
    assert pairs.get_execution_config().get_parallelism() == 4
    cached = pairs.cache()
    cached.invalidate()
    assert cached.transformation is pairs.transformation
    pairs.map(str).force_non_parallel().name("text").print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(node["type"], node["parallelism"]) for node in nodes] == [
        ("source", 4), ("text", 1), ("Sink: PrintSink", 1),
    ]  # fmt: skip
    assert [node.get("predecessors", [{}])[0].get("id") for node in nodes] == [None, 1, 2]
    windowed = pairs.key_by(lambda pair: pair[0]).count_window(2)
    assert (windowed.get_execution_environment(), windowed.get_input_type()) == (env, pairs.get_type())


def test_a_checkpoint_configuration_answers_what_was_set_after_it_was_made(env: StreamExecutionEnvironment) -> None:
    """As in a test of PyFlink's: the configuration answered what was set when it was asked for."""
    config, other = env.get_checkpoint_config(), env.get_checkpoint_config()
    assert config.get_checkpoint_interval() == -1
    config.set_checkpoint_interval(1000)
    assert (config.get_checkpoint_interval(), other.get_checkpoint_interval()) == (1000, 1000)
    env.enable_checkpointing(2000)
    assert (config.get_checkpoint_interval(), env.get_checkpoint_interval()) == (2000, 2000)
    config.set_checkpoint_storage("file:///state")
    storage = other.get_checkpoint_storage()
    assert storage is not None
    assert storage.get_checkpoint_path() == "file:///state"


def test_a_union_is_no_step_of_a_plan(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    united = pairs.union(pairs.map(lambda pair: pair, pairs.get_type())).union(
        env.from_collection([], pairs.get_type())
    )
    united.project(0).print()
    united.print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [node["type"] for node in nodes] == ["source", "map", "source", "Projection", *["Sink: PrintSink"] * 2]
    assert [[before["id"] for before in node["predecessors"]] for node in nodes[3:]] == [[1, 2, 3], [4], [1, 2, 3]]


def test_project_takes_fields_of_tuples(pairs: DataStream) -> None:
    assert pairs.project(2, 0).get_type() == Types.TUPLE([Types.DOUBLE(), Types.STRING()])
    for wrong in ((), (3,), (-1,), ("a",)):
        with pytest.raises(InvalidRequestError, match="positions"):
            pairs.project(*wrong)
    with pytest.raises(InvalidRequestError, match=r"Types\.TUPLE"):
        pairs.map(str).project(0)


def test_keywords_are_pyflinks(pairs: DataStream) -> None:
    assert pairs.key_by(key_selector=lambda pair: pair[0], key_type=Types.STRING()).key.key_type == Types.STRING()
    assert pairs.key_by(lambda pair: pair[0], Types.STRING()).key.key_type == Types.STRING()
    both = pairs.connect(pairs)
    both.key_by(key_selector1=lambda a: a[0], key_selector2=lambda b: b[0], key_type=Types.STRING())
    backend = EmbeddedRocksDBStateBackend()
    backend.set_number_of_transfer_threads(number_of_transfering_threads=3)
    assert Types.ROW_NAMED(field_names=["a"], field_types=[Types.INT()]).get_field_names() == ["a"]


def test_what_would_change_results_is_refused_with_what_to_do(
    env: StreamExecutionEnvironment, pairs: DataStream
) -> None:
    for call, remedy in (
        (lambda: pairs.add_sink(print), r"varvite\.Sink"),
        (lambda: pairs.sink_to(object()), "write_stream"),
        (lambda: env.from_source(object(), None, "numbers"), r"from_dataframe"),
        (lambda: env.add_source(object()), r"from_dataframe"),
        (lambda: env.create_input(object()), r"from_dataframe"),
        (lambda: env._j_stream_execution_environment, r"socket.*from_dataframe"),
        (lambda: env.get_config().disable_auto_generated_uids(), "uid"),
        (env.get_execution_plan, "nothing to execute"),
    ):
        with pytest.raises(InvalidRequestError, match=remedy):
            call()


def test_settings_of_execution_are_options_or_are_kept_for_their_getters(env: StreamExecutionEnvironment) -> None:
    config = env.get_config()
    assert isinstance(config, ExecutionConfig)
    for name, default, value in (
        ("auto_watermark_interval", 200, 1), ("latency_tracking_interval", 0, 5),
        ("task_cancellation_interval", 30_000, 7), ("task_cancellation_timeout", 180_000, 9),
        ("parallelism", 4, 2), ("max_parallelism", -1, 64), ("global_job_parameters", {}, {"a": "1"}),
    ):  # fmt: skip
        assert getattr(config, f"get_{name}")() == default
        assert getattr(config, f"set_{name}")(value) is config
        assert getattr(env.get_config(), f"get_{name}")() == value
    for name, default in (
        ("closure_cleaner", True), ("object_reuse", False), ("force_kryo", False), ("force_avro", False),
    ):  # fmt: skip
        assert getattr(config, f"is_{name}_enabled")() is default
        getattr(config, f"disable_{name}" if default else f"enable_{name}")()
        assert getattr(env.get_config(), f"is_{name}_enabled")() is not default
    assert env.get_parallelism() == 2
    assert not config.has_generic_types_disabled()
    assert config.disable_generic_types().has_generic_types_disabled()
    assert env.code_level().values["pipeline.generic-types"] is False


def test_settings_of_the_environment_are_answered(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    group = SlotSharingGroup.builder("g").set_cpu_cores(1.5).set_task_heap_memory_mb(64).build()
    assert (group.get_name(), group.get_task_heap_memory()) == ("g", MemorySize.of_mebi_bytes(64))
    assert env.register_slot_sharing_group(group).set_buffer_timeout(7).disable_operator_chaining() is env
    assert (env.get_buffer_timeout(), env.is_chaining_enabled()) == (7, False)
    env.set_default_savepoint_directory("file:///s")
    env.set_default_local_parallelism(3)
    assert (env.get_default_savepoint_directory(), env.get_default_local_parallelism()) == ("file:///s", 3)
    env.add_jars("file:///flink-sql-connector-kafka.jar")
    env.set_python_requirements("requirements.txt")
    assert "spark.jars" in caplog.text
    assert "packaging.md" in caplog.text
    env.configure(configuration=Configuration.from_dict({"pipeline.max-parallelism": 16}))
    assert env.get_max_parallelism() == 16
    env.close()


def test_settings_of_flink_1_are_taken(env: StreamExecutionEnvironment) -> None:
    assert env.get_stream_time_characteristic() is TimeCharacteristic.EventTime
    for kind in (TimeCharacteristic.EventTime, TimeCharacteristic.ProcessingTime):
        assert env.set_stream_time_characteristic(kind).get_stream_time_characteristic() is kind
    with pytest.raises(InvalidRequestError, match="assign_timestamps_and_watermarks"):
        env.set_stream_time_characteristic(TimeCharacteristic.IngestionTime)
    strategy = RestartStrategies.fixed_delay_restart(3, 1000)
    assert env.set_restart_strategy(strategy).get_restart_strategy() is strategy
    assert env.get_config().get_restart_strategy() is strategy
    assert strategy.get_delay_between_attempts_interval() == timedelta(seconds=1)
    execution = env.get_config()
    assert execution.get_execution_mode() is ExecutionMode.PIPELINED
    assert execution.set_execution_mode(ExecutionMode.BATCH).get_execution_mode() is ExecutionMode.BATCH
    assert execution.get_default_input_dependency_constraint() is InputDependencyConstraint.ANY
    execution.set_default_input_dependency_constraint(InputDependencyConstraint.ALL)
    assert env.get_config().get_default_input_dependency_constraint() is InputDependencyConstraint.ALL
    assert not execution.is_auto_type_registration_disabled()
    assert execution.register_pojo_type("a.B").disable_auto_type_registration().is_auto_type_registration_disabled()
    config = env.get_checkpoint_config().set_checkpoint_storage_dir("file:///checkpoints")
    kept = ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
    assert config.enable_externalized_checkpoints(cleanup_mode=kept).get_externalized_checkpoint_cleanup() is kept


def test_configurations_are_joined_and_lists_are_read() -> None:
    other = Configuration().set_integer("a", 1)
    joined = Configuration().add_all(other).add_all(other, "x.")
    assert joined.to_dict() == {"a": 1, "x.a": 1}
    assert joined == Configuration.from_dict({"x.a": 1, "a": 1}) != Configuration.from_dict({"a": 1})
    assert len({joined, Configuration(joined), Configuration()}) == 2
    assert str(joined) == "{a=1, x.a=1}"
    target: dict[str, Any] = {"b": 2}
    joined.add_all_to_dict(target)
    assert target == {"b": 2, "a": 1, "x.a": 1}
    assert Configuration().set_bytearray("k", bytearray(b"v")).get_bytearray("k", bytearray()) == bytearray(b"v")
    assert Configuration.parse_list_value("['a', \"b\", c]") == ["a", "b", "c"]
    assert (Configuration.parse_list_value("a;b"), Configuration.parse_list_value("")) == (["a", "b"], [])


def test_a_query_writes_the_streams_and_the_side_outputs_of_one_last_operator(pairs: DataStream) -> None:
    class Same(KeyedProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any: ...

    keyed = pairs.key_by(lambda pair: pair[0], Types.STRING())
    first, second = keyed.process(Same()), keyed.process(Same())
    ends = {
        "in": pairs, "first": first, "late": first.get_side_output(OutputTag("late")), "mapped": first.map(str),
        "second": second, "alone": keyed.process(Same()).get_side_output(OutputTag("late")),
    }  # fmt: skip
    names = {stream.transformation: name for name, stream in ends.items()}
    sinks: list[tuple[Any, Any]] = [(stream.transformation, None) for stream in ends.values()]
    sinks.append((pairs.transformation, None))
    assert [[names[end] for end, _ in query] for query in queries_of(sinks)] == [
        ["in", "in"], ["first", "late", "mapped"], ["second"], ["alone"],
    ]  # fmt: skip
    assert [job_of("Word Count!", number) for number in range(3)] == ["Word-Count", "Word-Count-2", "Word-Count-3"]
    assert len(job_of("x" * 200, 1)) <= 128
