"""Points in time as the naive datetimes that Spark's users know, and naive datetimes as points in time.

A naive datetime is what clocks show. They show an hour twice when summer ends: its second time has `fold=1`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from datetime import tzinfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_FOLDS_FROM_S: Final = 2 * 86_400
"""Seconds since 1970 from which `datetime.fromtimestamp` sets `fold`, and has no trouble with the first year."""
_clock: Final = datetime.fromtimestamp


def local_time(microseconds: int) -> datetime:
    """The clock of the local zone at a time since 1970, with `fold`; `OverflowError` outside of years 1 to 9999."""
    if microseconds >= _FOLDS_FROM_S * 1_000_000:
        try:
            return _clock(microseconds // 1_000_000).replace(microsecond=microseconds % 1_000_000)
        except ValueError as error:
            raise OverflowError(str(error)) from None
    at = _EPOCH + timedelta(microseconds=microseconds)
    naive = at.astimezone().replace(tzinfo=None)
    return naive if local_instant(naive) == at else naive.replace(fold=1)


def local_instant(naive: datetime) -> datetime:
    """The point in time at which clocks of the local zone show this; `fold` counts.

    Of a time that they skip it is what `mktime` gives: an hour on, as if they had not been put forward. Raises
    `OverflowError` if it is not within years 1 to 9999 of UTC.
    """
    try:
        seconds = int(naive.replace(microsecond=0).timestamp())
        return _EPOCH + timedelta(seconds=seconds, microseconds=naive.microsecond)
    except (OverflowError, ValueError):  # Python does not get over the first and the last day
        beside = naive + _DAY if naive.year == 1 else naive - _DAY
        return naive.replace(tzinfo=beside.astimezone().tzinfo).astimezone(UTC)


def instant_in(zone: tzinfo | None, naive: datetime) -> datetime:
    """The point in time at which clocks of a zone show this; None: of the local zone. `fold` counts."""
    return local_instant(naive) if zone is None else naive.replace(tzinfo=zone)


def instant_of_frame(zone: tzinfo | None, naive: datetime) -> datetime:
    """As `instant_in`, for values of DataFrames, which lose `fold`: the hour that comes twice is its second time.

    Raises:
        InvalidRequestError: Clocks of the zone never show this.
    """
    first = naive.replace(fold=0) if naive.fold else naive
    second = first.replace(fold=1)
    offset = _local_offset if zone is None else zone.utcoffset
    before, after = offset(first), offset(second)
    if before is not None and after is not None and before < after:
        raise InvalidRequestError(
            f"clocks of {zone or 'the local time zone'} never show {naive}, because they are put forward there; give "
            "the timestamp with its time zone"
        )
    return instant_in(zone, second)


def _local_offset(naive: datetime) -> timedelta:
    """Distance of the local clocks from UTC."""
    return naive - local_instant(naive).replace(tzinfo=None)


def missing_time(value: Any) -> bool:
    """Is this NaT of pandas or numpy? It is a datetime to Python."""
    return value != value  # noqa: PLR0124 - only what is missing differs from itself
