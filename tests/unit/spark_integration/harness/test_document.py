"""The code of docs/guide/testing.md, as it stands there."""

from __future__ import annotations

from typing import Any

from tests.tidy.pages.doc_blocks import ROOT, blocks_of


def test_the_code_of_the_page_runs() -> None:
    page = "docs/guide/testing.md"
    names: dict[str, Any] = {"__name__": "testing_page"}
    blocks = [block for block in blocks_of(page, (ROOT / page).read_text()) if "run" in block.tags]
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block.text, block.name, "exec", dont_inherit=True), names)
