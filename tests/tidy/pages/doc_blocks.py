"""Fenced code blocks of the documentation, so that tests can run or check what readers will type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.tidy.project_files import ROOT

SHELLS = frozenset({"console", "bash", "sh", "shell"})


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    document: str
    """Path from the project's root."""
    line: int
    """Of the opening fence, from 1."""
    language: str
    """First word after the fence; empty if there is none."""
    tags: tuple[str, ...]
    """Further words after the fence, such as `run`."""
    text: str

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """Every page that a reader is meant to read."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return sorted(pages)


def blocks_of(document: str, text: str) -> list[Block]:
    """The blocks of one page in order; an unclosed fence is a `ValueError`."""
    found: list[Block] = []
    fence, start, info, body = "", 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not fence and stripped.startswith("```"):
            fence = stripped[: len(stripped) - len(stripped.lstrip("`"))]
            start, info, body = number, stripped.lstrip("`"), []
        elif fence and stripped == fence:
            language, *tags = info.split() or [""]
            found.append(Block(document, start, language, tuple(tags), "\n".join(body) + "\n"))
            fence = ""
        elif fence:
            body.append(line)
    if fence:
        raise ValueError(f"{document}:{start}: the code block has no end")
    return found


def all_blocks() -> list[Block]:
    """The blocks of all documents."""
    return [block for page in documents() for block in blocks_of(str(page.relative_to(ROOT)), page.read_text())]


def commands_of(block: Block) -> list[str]:
    """Commands that a reader types: lines after `$ ` in a console block, in a script every line that is no comment."""
    joined = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        typed = [line.strip().removeprefix("$ ") for line in joined if line.strip().startswith("$ ")]
    else:
        typed = [line for line in joined if line.strip() and not line.strip().startswith("#")]
    return [" ".join(line.split()) for line in typed]
