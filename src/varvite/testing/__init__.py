"""For tests of users' functions, without Spark: `OperatorHarness`; see docs/guide/testing.md."""

from varvite.changelog.keyed.view import ViewedTimer
from varvite.spark_integration.harness.harness import OperatorHarness, OperatorSnapshot

__all__ = [
    "OperatorHarness",
    "OperatorSnapshot",
    "ViewedTimer",
]
