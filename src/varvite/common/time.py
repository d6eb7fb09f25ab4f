"""`pyflink.common.time`'s names that varvite has."""

from varvite.changelog.api.time_spans import Duration, Time

__all__ = [
    "Duration",
    "Time",
]
