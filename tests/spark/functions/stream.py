"""Functions of stream programs that tests send to workers; here, so that the workers can import them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from varvite.common import Types
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import FilterFunction, FlatMapFunction, KeyedProcessFunction, MapFunction, RuntimeContext
from varvite.datastream.state import ValueStateDescriptor


class Count(MapFunction):
    """(element, how often its key came)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> tuple[Any, int]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value, count


class FirstOfKey(FilterFunction):
    """Tells whether an element is the first of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        first = self.seen.value() is None
        self.seen.update(True)
        return first


class Times(FlatMapFunction):
    """Each element as often as its key came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def flat_map(self, value: Any) -> Iterator[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        for _ in range(count):
            yield value


class Tagged(MapFunction):
    """A rich stateless function: marks elements with what `open` has made."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tag = f"{self.mark} of {runtime_context.get_task_name()}"

    def map(self, value: Any) -> str:
        return f"{value} {self.tag}"


class Placed(MapFunction):
    """(element, partition)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> tuple[Any, int]:
        return value, self.index


class KeyAndTime(KeyedProcessFunction[Any, Any, Any]):
    """(key, its type, time stamp, watermark)."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key = ctx.get_current_key()
        yield key, type(key).__name__, ctx.timestamp(), ctx.current_watermark()


class Second(TimestampAssigner):
    """The second field is the time stamp."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


class UnluckyWhile(MapFunction):
    """Raises while a file is there."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def map(self, value: Any) -> Any:
        if self.marker.exists():
            raise ArithmeticError(f"{value} is unlucky now")
        return value


class Unlucky(MapFunction):
    """Raises at 13."""

    def map(self, value: Any) -> Any:
        if value == 13:
            raise ArithmeticError(f"{value} is unlucky")
        return value


class Bomb:
    """Goes off when it is unpickled: then there is a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


class KeepBomb(MapFunction[int, int]):
    """Keeps something dangerous, and looks at it when it has some already."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def map(self, value: int) -> int:
        self._kept.value()
        self._kept.update(Bomb(Path(self._path)))
        return value
