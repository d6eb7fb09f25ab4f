"""`pyflink.common.time`'s names."""

from varvite.changelog.api.time_spans import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
