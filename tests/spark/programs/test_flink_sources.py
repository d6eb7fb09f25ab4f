"""Programs that read with PyFlink's `from_source` and write files with its `FileSink`."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.rate_jobs import wait_for
from varvite.common import Duration, Encoder, Time, Types, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.connectors import NumberSequenceSource
from varvite.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from varvite.datastream.functions import ProcessFunction, ProcessWindowFunction
from varvite.datastream.state import ValueStateDescriptor
from varvite.datastream.window import TimeWindow, TumblingEventTimeWindows
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark

LINE = StreamFormat.text_line_format()
NO_TIMES = WatermarkStrategy.no_watermarks()


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)


def lines(env: StreamExecutionEnvironment, *paths: Path, form: StreamFormat = LINE) -> Any:
    source = FileSource.for_record_stream_format(form, *map(str, paths)).process_static_file_set().build()
    return env.from_source(source, NO_TIMES, "lines")


def collected(stream: Any, name: str = "job") -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


class Numbered(MapFunction):
    """Each element with its number in its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def map(self, value: Any) -> tuple[Any, int]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        return value, number


def test_numbers_come_in_order_and_then_the_job_ends(env: StreamExecutionEnvironment) -> None:
    stream = env.from_source(source=NumberSequenceSource(-2, 5), watermark_strategy=NO_TIMES, source_name="numbers")
    assert stream.get_name() == "numbers"
    assert stream.get_type() == Types.LONG()
    assert collected(stream) == list(range(-2, 6))
    assert collected(stream.map(lambda n: n * n, Types.LONG())) == [4, 1, 0, 1, 4, 9, 16, 25]
    last = (1 << 63) - 1
    assert collected(env.from_source(NumberSequenceSource(last - 1, last), NO_TIMES, "n")) == [last - 1, last]
    assert collected(env.from_source(NumberSequenceSource(-last - 1, -last), NO_TIMES, "n")) == [-last - 1, -last]


def test_a_job_that_goes_on_gets_no_number_twice(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    """As Flink does from a savepoint; its state is there."""
    env.set_parallelism(2).get_checkpoint_config().set_checkpoint_storage(f"file://{tmp_path}/state")

    def run(last: int) -> list[Any]:
        numbers = env.from_source(NumberSequenceSource(1, 6), NO_TIMES, "numbers")
        return sorted(collected(numbers.key_by(lambda n: n % 2, Types.LONG()).map(Numbered()), "numbered"))

    assert [n for n, _ in run(6)] == [1, 2, 3, 4, 5, 6]
    assert run(6) == []


def test_lines_of_files_of_every_kind(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "deep" / "a=1").mkdir(parents=True)
    (root / "one.txt").write_bytes(b"a\r\nb\n\nlast")
    (root / "deep" / "a=1" / "two").write_text("é\n")
    (root / "deep" / "packed.gz").write_bytes(gzip.compress(b"packed\n"))
    (root / "deep" / "odd.txt").write_bytes(b"x\xffy\n")
    for hidden in ("_hidden", ".hidden"):
        (root / hidden).write_text("no\n")
    (tmp_path / "single[1].txt").write_text("single\n")
    assert sorted(collected(lines(env, root))) == sorted(["a", "b", "", "last", "é", "packed", "x\ufffdy"])
    assert sorted(collected(lines(env, root / "one.txt", root / "deep" / "a=1"))) == ["", "a", "b", "last", "é"]
    latin = StreamFormat.text_line_format("ISO-8859-1")
    assert collected(lines(env, root / "deep" / "odd.txt", form=latin)) == ["xÿy"]
    assert collected(lines(env, root / "one.txt")) == ["a", "b", "", "last"], "in their order"


def test_files_that_spark_would_take_for_text_are_an_error(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "packed.xz").write_bytes(b"\xfd7zXZ\x00")
    with pytest.raises(Exception, match=r"cannot read files ending in \.xz or \.gzip"):
        collected(lines(env, tmp_path))
    with pytest.raises(InvalidRequestError, match="there is nothing at"):
        lines(env, tmp_path / "nothing")


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


class CountOfWindow(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[str, int, int, int]]:
        yield key, context.window().start, context.window().end, len(list(elements))


def windowed(stream: Any) -> Any:
    pairs = stream.map(lambda line: (line.split()[0], int(line.split()[1])), Types.TUPLE([Types.STRING(), Types.INT()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    keyed = pairs.assign_timestamps_and_watermarks(strategy).key_by(lambda pair: pair[0], Types.STRING())
    output = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(5))).process(CountOfWindow(), output)


def test_at_the_end_of_the_files_all_windows_fire_and_nothing_is_late(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    for number, times in enumerate(([9, 15], [1, 2, 3, 4, 8], [5])):
        (tmp_path / f"{number}.txt").write_text("".join(f"hi {time}\n" for time in times))
    windows = [("hi", 0, 5, 4), ("hi", 5, 10, 3), ("hi", 15, 20, 1)]
    assert sorted(collected(windowed(lines(env, tmp_path)))) == windows


def test_new_files_are_read_however_old_they_are(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "0").write_text("first\n")
    source = FileSource.for_record_stream_format(LINE, str(inbox)).monitor_continuously(Duration.of_millis(50)).build()
    rows: list[str] = []
    stream = env.from_source(source, NO_TIMES, "lines")
    writer = stream.foreach_batch(lambda df, _: rows.extend(row.value for row in df.collect()))
    writer = writer.option("execution.checkpointing.dir", str(tmp_path / "state"))
    query = writer.query_name("watching").option("checkpointLocation", str(tmp_path / "c")).start()
    wait_for(query, lambda: rows == ["first"], rows)
    (tmp_path / "old").write_text("old\n")
    os.utime(tmp_path / "old", (1_000_000_000, 1_000_000_000))
    (tmp_path / "old").rename(inbox / "1")
    wait_for(query, lambda: rows == ["first", "old"], rows)
    query.stop()


def test_sources_that_end_and_that_do_not_are_not_mixed(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a\n")
    watching = FileSource.for_record_stream_format(LINE, str(tmp_path)).monitor_continuously(Duration.of_seconds(1))
    both = lines(env, tmp_path).union(env.from_source(watching.build(), NO_TIMES, "more"))
    with pytest.raises(InvalidRequestError, match="another one that does not"):
        both.execute_and_collect()
    ends = lines(env, tmp_path).union(env.from_collection(["b"], Types.STRING()))
    assert sorted(collected(ends)) == ["a", "b"]


def test_text_files_are_read_as_in_flink_1(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes("tea\n\ncafé\r\n".encode("latin-1"))
    (tmp_path / "1").write_text("cup")
    assert sorted(collected(env.read_text_file(str(tmp_path), "ISO-8859-1"))) == ["", "café", "cup", "tea"]
    stream = env.read_text_file(file_path=f"file://{tmp_path}/1")
    assert (stream.get_type(), collected(stream.map(str.upper))) == (Types.STRING(), ["CUP"])
    with pytest.raises(InvalidRequestError, match="nothing at"):
        env.read_text_file(str(tmp_path / "none"))


class WithTime(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


def test_lines_have_no_time_stamps(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a\n")
    assert collected(lines(env, tmp_path).process(WithTime())) == [("a", None)]


def written(directory: Path) -> dict[str, list[str]]:
    """Bucket → lines, in files that a reader of directories sees."""
    files = [p for p in directory.rglob("*") if p.is_file() and not any(part[0] in "._" for part in p.parts[-3:])]
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(str(file.parent.relative_to(directory)), []).extend(file.read_text().splitlines())
    return found


def sink(directory: Path, buckets: BucketAssigner | None = None) -> Any:
    builder = FileSink.for_row_format(base_path=str(directory), encoder=Encoder.simple_string_encoder())
    config = OutputFileConfig.builder().with_part_prefix("prefix").with_part_suffix(".ext").build()
    builder = builder.with_output_file_config(config).with_rolling_policy(RollingPolicy.default_rolling_policy())
    return (builder if buckets is None else builder.with_bucket_assigner(buckets)).build()


def test_a_program_counts_words_from_a_file_into_files(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("to be or\nnot to be\n")
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    counts = lines(env, tmp_path / "text").flat_map(str.split).map(lambda word: (word, 1), output_type=pair)
    counts.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink=sink(tmp_path / "out"))
    env.execute()
    ((bucket, found),) = written(tmp_path / "out").items()
    assert len(bucket) == len("2026-11-28--04"), "Flink's default: an hour"
    assert sorted(found) == sorted(["(to,1)", "(be,1)", "(or,1)", "(not,1)", "(to,2)", "(be,2)"])
    names = [path.name for path in (tmp_path / "out" / bucket).iterdir() if path.name[0] != "."]
    assert all(name.startswith("prefix-") and name.endswith(".ext") for name in names)


def test_windows_are_written_beside_what_is_printed(
    env: StreamExecutionEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("hi 1\nhi 6\n")
    windows = windowed(lines(env, tmp_path / "in"))
    windows.print()
    windows.sink_to(sink(tmp_path / "out", BucketAssigner.base_path_bucket_assigner()))
    env.execute("windows")
    assert written(tmp_path / "out") == {".": ["(hi,0,5,1)", "(hi,5,10,1)"]}
    assert sorted(capsys.readouterr().out.splitlines()) == ["(hi,0,5,1)", "(hi,5,10,1)"]
    rows = windows.map(json.dumps)
    rows.sink_to(sink(tmp_path / "other", BucketAssigner.date_time_bucket_assigner("'day='yyyy", "UTC")))
    env.execute("windows")
    assert [(b[:4], sorted(found)) for b, found in written(tmp_path / "other").items()] == [
        ("day=", ['["hi", 0, 5, 1]', '["hi", 5, 10, 1]'])
    ]


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd HH:mm", "no such pattern"])
def test_buckets_that_cannot_be_are_refused_at_the_start(
    env: StreamExecutionEnvironment, tmp_path: Path, pattern: str
) -> None:
    numbers = env.from_source(NumberSequenceSource(1, 2), NO_TIMES, "numbers")
    numbers.sink_to(sink(tmp_path / "out", BucketAssigner.date_time_bucket_assigner(pattern)))
    with pytest.raises(InvalidRequestError, match=r"bucket|cannot have :"):
        env.execute()
    assert not (tmp_path / "out").exists()
