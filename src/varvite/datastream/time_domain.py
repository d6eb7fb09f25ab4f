"""`pyflink.datastream.time_domain`'s names."""

from varvite.changelog.keyed.timers import TimeDomain

__all__ = ["TimeDomain"]
