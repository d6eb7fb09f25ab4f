"""The code of docs/ttl.md, run over a job without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.doc_blocks import ROOT, blocks_of
from tests.keyed_job import KeyedJob

HOUR_MS = 3_600_000


class Flight(NamedTuple):
    """A row."""

    tailnum: str
    dest: str


def test_the_function_of_the_page_forgets_old_airports(tmp_path: Path) -> None:
    page = "docs/ttl.md"
    [block] = [b for b in blocks_of(page, (ROOT / page).read_text()) if "run" in b.tags]
    names: dict[str, Any] = {}
    exec(compile(block.text, block.name, "exec", dont_inherit=True), names)
    job = KeyedJob("hashmap", "on", tmp_path)
    function = names["RecentAirports"]()
    function.open(job.backend)

    def fly(hour: int, dest: str) -> list[Any]:
        job.move_time(hour * HOUR_MS)
        job.set_key("N1")
        found = list(function.process_element(Flight("N1", dest), None))
        job.commit()
        return sorted(found)

    assert fly(0, "JFK") == [("N1", "JFK", 1)]
    assert fly(1, "BOS") == [("N1", "BOS", 1), ("N1", "JFK", 1)]
    assert fly(2, "BOS") == [("N1", "BOS", 2), ("N1", "JFK", 1)], "all was read an hour ago"
    assert fly(4, "BOS") == [("N1", "BOS", 1)]
    job.close()
