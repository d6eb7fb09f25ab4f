"""`pyflink.datastream.timerservice`'s names."""

from varvite.spark_integration.functions.timers import TimerService

__all__ = ["TimerService"]
