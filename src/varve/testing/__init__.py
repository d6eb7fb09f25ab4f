"""For tests of users' functions, without Spark: `OperatorHarness`; see docs/testing.md."""

from varve.changelog.keyed.view import ViewedTimer
from varve.spark_integration.harness.harness import OperatorHarness, OperatorSnapshot

__all__ = [
    "OperatorHarness",
    "OperatorSnapshot",
    "ViewedTimer",
]
