"""For tests of users' functions, without Spark: `OperatorHarness`; see docs/testing.md."""

from varve.changelog.state_view import ViewedTimer
from varve.spark_integration.operator_harness import OperatorHarness, OperatorSnapshot

__all__ = [
    "OperatorHarness",
    "OperatorSnapshot",
    "ViewedTimer",
]
