"""The measurements of one attempt in the metrics of the user's functions, which the driver adds up."""

from __future__ import annotations

from typing import Literal

import msgspec

MetricKind = Literal["counter", "gauge", "meter", "distribution"]


class UserMetric(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A metric since the worker's last summary."""

    name: str
    """Its groups and its own name, joined by dots."""
    kind: MetricKind
    count: int = 0
    """Of a counter the difference, of a meter the events, of a distribution the values."""
    total: float = 0.0
    """Of a gauge the value, of a distribution the sum."""
    least: float = 0.0
    """Of a distribution the least value."""
    largest: float = 0.0
    """Of a distribution the largest value."""
