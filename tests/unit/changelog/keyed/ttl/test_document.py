"""The code of docs/guide/ttl.md, run without Spark."""

from __future__ import annotations

from typing import Any

from tests.storage_switches import StorageSwitches
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.testing import OperatorHarness

HOUR_MS = 3_600_000


def test_the_function_of_the_page_forgets_old_airports(storage_switches: StorageSwitches) -> None:
    page = "docs/guide/ttl.md"
    [block] = [b for b in blocks_of(page, (ROOT / page).read_text()) if "run" in b.tags]
    names: dict[str, Any] = {}
    exec(compile(block.text, block.name, "exec", dont_inherit=True), names)
    function, output = names["RecentAirports"](), "tailnum string, dest string, flights bigint"
    with OperatorHarness.of_function(
        function, "tailnum", "tailnum string, dest string", output, **storage_switches.options()
    ) as harness:

        def fly(hour: int, dest: str) -> list[Any]:
            return sorted(harness.process_batch([("N1", dest)], processing_time=hour * HOUR_MS))

        assert fly(0, "JFK") == [("N1", "JFK", 1)]
        assert fly(1, "BOS") == [("N1", "BOS", 1), ("N1", "JFK", 1)]
        assert fly(2, "BOS") == [("N1", "BOS", 2), ("N1", "JFK", 1)], "all was read an hour ago"
        assert fly(4, "BOS") == [("N1", "BOS", 1)]
