"""The error of rows that cannot be read: it names the column, its type and a value, and is not tried again."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.spark_integration.elements.arrow_values import zone_in
from varvite.storage.errors import InvalidRequestError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SHOWN_CHARACTERS: Final = 100
"""Of a value in an error."""
_REASON_CHARACTERS: Final = 200
_nulls: Any = pa.nulls


class UnreadableInputError(Exception):
    """Rows of the input cannot be read. The cause says it to the user."""

    def __init__(self, cause: VarviteError) -> None:
        super().__init__(cause)
        self.cause = cause


@contextmanager
def reading(batch: pa.RecordBatch, columns: Sequence[str], read: Callable[[pa.RecordBatch], Any]) -> Iterator[None]:
    """Turn whatever is raised while rows are read into an error of the user's.

    Args:
        batch: The rows.
        columns: Names of the columns that are read.
        read: Reads a batch like that one; called again to find the value.

    Raises:
        UnreadableInputError: Something was raised.
    """
    try:
        yield
    except UnreadableInputError:
        raise
    except VarviteError as error:
        raise UnreadableInputError(error) from error
    except Exception as error:
        raise UnreadableInputError(_explained(error, batch, columns, read)) from error


def _explained(
    error: Exception, batch: pa.RecordBatch, columns: Sequence[str], read: Callable[[pa.RecordBatch], Any]
) -> VarviteError:
    doubled = [name for name, count in Counter(columns).items() if count > 1]
    if doubled:
        return InvalidRequestError(f"the input has several columns named {doubled}; rename them")
    zones = {zone_in(field.type) for field in batch.schema if field.name in columns} - {None}
    unknown = [zone for zone in sorted(map(str, zones)) if not _is_known(zone)]
    if unknown:
        return InvalidRequestError(
            f"the session's time zone {unknown[0]!r} is none that Python knows: set spark.sql.session.timeZone to a "
            "region such as 'Asia/Tokyo', or to an offset such as '+08:00'"
        )

    def fails(rows: pa.RecordBatch) -> bool:
        try:
            read(rows)
        except Exception as failed:  # noqa: BLE001  as above
            return type(failed) in (type(error), UnreadableInputError)
        return False

    low, high = 0, batch.num_rows  # the first `low` rows can be read, the first `high` cannot
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(batch.slice(0, middle)) else (middle, high)
    row = batch.slice(low, 1)
    reason = _cut(f"{type(error).__name__}: {error}", _REASON_CHARACTERS)
    for name in columns:
        index = row.schema.get_field_index(name)
        others = [c if i == index else _nulls(1, c.type) for i, c in enumerate(row.columns)]
        if fails(pa.RecordBatch.from_arrays(others, schema=row.schema)):
            return InvalidRequestError(
                f"column {name!r} of type {row.column(index).type} holds {_shown(row.column(index))}, which cannot be "
                f"read ({reason}); correct or drop such values before"
            )
    return InvalidRequestError(f"a row of the input with the columns {list(columns)} cannot be read ({reason})")


def _is_known(zone: str) -> bool:
    try:
        pa.scalar(0, pa.timestamp("us", tz=zone)).as_py()
    except Exception:  # noqa: BLE001  Arrow and zoneinfo have errors of their own
        return False
    return True


def _shown(column: Any) -> str:
    """The only value of a column, with control characters escaped."""
    try:
        text = repr(column[0].as_py())
    except Exception:  # noqa: BLE001  such a value has brought us here
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        text = ascii(" ".join(str(plain).split()))
    return _cut(text, _SHOWN_CHARACTERS)


def _cut(text: str, characters_max: int) -> str:
    """A text of at most that length, with control characters escaped."""
    text = "".join([c if c.isprintable() else ascii(c)[1:-1] for c in text[: characters_max + 1]])
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."
