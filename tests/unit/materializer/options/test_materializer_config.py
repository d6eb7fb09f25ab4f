from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.options.table import OPTIONS, read_properties
from varvite.materializer.service.child_process import decode_config, encode_config
from varvite.storage.errors import InvalidRequestError

BASE = MaterializerConfig(storage_url="/state")


def configured(properties: dict[str, str]) -> MaterializerConfig:
    """`BASE`, changed by `spark.varvite.*` keys."""
    return replace(BASE, **read_properties(properties))


def test_properties_have_flinks_names_and_set_the_fields() -> None:
    config = configured(
        {
            "spark.varvite.execution.checkpointing.dir": "s3://bucket/state",
            "spark.varvite.state.changelog.periodic-materialize.interval": "3 min",
            "spark.varvite.state.changelog.max-failures-allowed": "5",
            "spark.varvite.materializer.log-bytes": "8 mb",
            "spark.varvite.materializer.mode": "sidecar",
            "spark.varvite.state.backend.type": "rocksdb",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    assert config == MaterializerConfig(
        storage_url="s3://bucket/state", interval_ms=180_000, max_failures_allowed=5, log_bytes=8 << 20
    )


def test_periodic_materialization_can_be_switched_off() -> None:
    key = "spark.varvite.state.changelog.periodic-materialize.enabled"
    assert configured({key: "false"}).interval_ms is None
    assert configured({key: "true"}) == BASE


def test_a_misspelt_option_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(InvalidRequestError, match=r"did you mean spark.varvite.materializer.poll-interval\?"):
        configured({"spark.varvite.materializer.pol-interval": "1s"})


def test_a_value_that_does_not_parse_names_its_key() -> None:
    with pytest.raises(InvalidRequestError, match="max-failures-allowed"):
        configured({"spark.varvite.state.changelog.max-failures-allowed": "many"})


@pytest.mark.parametrize("key", [*OPTIONS.options, *OPTIONS.current_keys])
def test_a_misspelt_option_of_the_job_is_an_error_with_a_suggestion(key: str) -> None:
    """A sidecar may be started with the job's own settings."""
    current = OPTIONS.current_keys.get(key, key)
    with pytest.raises(InvalidRequestError) as caught:
        configured({f"spark.varvite.{key}{key[-1]}": "?"})
    assert f"did you mean spark.varvite.{current}?" in str(caught.value)


def test_the_values_of_options_of_the_job_are_not_read() -> None:
    assert configured({"spark.varvite.state.backend.type": "one of another version"}) == BASE


@pytest.mark.parametrize(
    "fields",
    [
        {"storage_url": ""},
        {"job": "a/b"},
        {"interval_ms": 0},
        {"poll_ms": 0},
        {"collect_ms": 0},
        {"grace_ms": -1},
        {"log_ratio": 0.0},
        {"replay_ms": 0},
        {"space_ratio": 1.0},
        {"retention_ms": -1},
        {"parallel": 0},
        {"parallel": 4, "memory_bytes": (16 << 20) - 1},
        {"disk_bytes": 0},
        {"bandwidth_bytes_per_s": 0},
        {"metrics_port": 65_536},
    ],
)
def test_impossible_configurations_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        MaterializerConfig(**{"storage_url": "/state", **fields})  # pyright: ignore[reportArgumentType]


def test_a_configuration_survives_the_way_to_the_child() -> None:
    config = MaterializerConfig(
        storage_url="s3://b/x",
        storage_options={"key": "k", "secret": "ß"},
        job="flights",
        interval_ms=None,
        working_directory=Path("/tmp/w"),
    )
    assert decode_config(encode_config(config)) == config
    with pytest.raises(InvalidRequestError, match="does not parse"):
        decode_config(b'{"storage_url": 7}')


def test_ranges_that_are_materialized_share_the_memory() -> None:
    options = MaterializerConfig(storage_url="/state", parallel=4, memory_bytes=64 << 20).follower_options
    used = options.write_buffer_count * options.write_buffer_size_bytes + options.block_cache_size_bytes
    assert used == 16 << 20
    assert options.recent_values_size_bytes == 0


def test_storage_options_may_come_from_spark_properties() -> None:
    config = configured(
        {"spark.varvite.storage.option.endpoint_url": "http://127.0.0.1", "spark.varvite.state.backend.type": "rocksdb"}
    )
    assert config.storage_options == {"endpoint_url": "http://127.0.0.1"}


def test_storage_options_of_spark_properties_are_read_as_the_driver_reads_them() -> None:
    given = {"use_ssl": "false", "anon": "True", "key": "123", "config_kwargs": '{"read_timeout": 5}', "a": "[1]"}
    config = configured({f"spark.varvite.storage.option.{name}": text for name, text in given.items()})
    typed = {"use_ssl": False, "anon": True, "key": "123", "config_kwargs": {"read_timeout": 5}, "a": [1]}
    assert config.storage_options == typed
    with pytest.raises(InvalidRequestError, match=r"client_kwargs begins like JSON") as raised:
        configured({"spark.varvite.storage.option.client_kwargs": "{hunter2"})
    assert "hunter2" not in str(raised.value)


def test_the_older_name_of_the_directory_counts_unless_the_newer_one_is_given() -> None:
    older, newer = "spark.varvite.state.checkpoints.dir", "spark.varvite.execution.checkpointing.dir"
    assert read_properties({older: "/a"}) == {"storage_url": "/a"}
    assert read_properties({newer: "/b", older: "/a"}) == read_properties({older: "/a", newer: "/b"})
    assert read_properties({newer: "/b", older: "/a"}) == {"storage_url": "/b"}
