"""PyFlink's names that varvite has nothing for: a program may import, subclass and annotate with them, not use them."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, Final

from varvite.storage.errors import InvalidRequestError

READ_WITH_SPARK: Final = (
    "read with Spark: env.from_dataframe(spark.readStream.format(...).load()), or env.from_collection(...)"
)
WRITE_WITH_SPARK: Final = (
    "write with stream.sink_to(sink), where sink is a varvite.Sink, or with stream.write_stream.format(...)"
)
BOTH_WITH_SPARK: Final = f"{READ_WITH_SPARK}; {WRITE_WITH_SPARK}"
NO_SCHEMAS: Final = (
    "records become elements, and elements records, in a map() function or in Spark's from_json, from_csv and to_json"
)
NO_ASSIGNER: Final = "what an assigner of your own does, a KeyedProcessFunction with state and timers can do"
NO_JAVA: Final = "there is no Flink below it, and so no Java object"
NO_FLINK: Final = (
    f"{NO_JAVA}: set options with env.configure(key, value) or a Configuration, and read what only Java's API reads, "
    "such as a socket, with env.from_dataframe(spark.readStream.format(...).load())"
)


class _Absent(ABCMeta):
    """The class of such names: a call, or an attribute, is an error that says what to do."""

    advice: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise cls._error(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name == "advice":
            raise AttributeError(name)
        raise cls._error(f"{cls.__name__}.{name}")

    def __getitem__(cls, item: Any) -> Any:
        del item
        return cls

    def _error(cls, what: str) -> InvalidRequestError:
        return InvalidRequestError(f"{what}: varvite does not have this part of PyFlink; {cls.advice}")


def absent(name: str, advice: str) -> Any:
    """A class that stands for a name of PyFlink's.

    Args:
        name: The name.
        advice: The remedy, for the error of its use.
    """
    return _Absent(name, (), {"advice": advice, "__doc__": f"PyFlink's `{name}`, which cannot be used here."})
