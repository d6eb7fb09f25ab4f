"""pytest plugin (`-p tests.kind_summary`): ends a run with one line per kind of test, skipped tests included."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

OUTCOMES = ("passed", "failed", "skipped")


def kind_of(node_id: str) -> str:
    """`tests/unit/test_x.py::test_y` is of the kind `unit`; whatever is not in such a directory is `other`."""
    parts = Path(node_id.split("::", 1)[0]).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "other"


class KindSummary:
    """Counts outcomes and seconds by kind, in the order in which the kinds ran."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kind = kind_of(report.nodeid)
        self.seconds[kind] += report.duration
        if report.when == "call" or (report.when in ("setup", "teardown") and not report.passed):
            self.outcomes[kind][report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.outcomes:
            return
        terminalreporter.section("tests by kind")
        for kind, counts in self.outcomes.items():
            shown = "  ".join(f"{counts[outcome]:6d} {outcome}" for outcome in OUTCOMES)
            colour = {"red": True} if counts["failed"] else {"green": True}
            terminalreporter.write_line(f"{kind:<12}{shown}  {self.seconds[kind]:8.1f} s", **colour)
        if any(counts["skipped"] for counts in self.outcomes.values()) and not terminalreporter.hasopt("s"):
            terminalreporter.write_line("Some tests were skipped; `make test-all` says which and why.", yellow=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(KindSummary(), "kind_summary_counts")
