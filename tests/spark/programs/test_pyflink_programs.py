"""The programs of `examples/pyflink_programs` print what they print on PyFlink, where only their imports differ."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.tidy.pages.doc_blocks import ROOT, blocks_of

pytestmark = pytest.mark.spark
DIRECTORY = ROOT / "examples" / "pyflink_programs"

OUTPUT = {
    "alarms": (
        "(press,70)\n(saw,95)\n(press,91)\n(press,93)\n(saw,95)\n"
        "alarm> saw at 95\nalarm> press at 91\nalarm> press at 93\n"
    ),
    "count_function": "((1, 1), 1)\n((2, 1), 1)\n((3, 1), 1)\n((1, 1), 2)\n((2, 1), 2)\n((1, 1), 3)\n",
    "crowded_bridge": (
        "north 0..20000: 6 cars\nnorth -10000..10000: 6 cars\nsouth 20000..40000: 7 cars\nsouth 10000..30000: 8 cars\n"
        "north -10000..10000: 6 cars\nsouth -10000..10000: 3 cars\nnorth 0..20000: 8 cars\nsouth 0..20000: 4 cars\n"
        "north 10000..30000: 2 cars\nsouth 10000..30000: 8 cars\nsouth 20000..40000: 7 cars\n"
    ),
    "exchange_rates": "order 1: 15.0 EUR\norder 2: 10.0 EUR\norder 3: no rate yet\n",
    "hottest_sensor": "roof: 21.5\ncellar: 12.0\nroof: 24.0\ncellar: 12.0\nroof: 24.0\n",
    "parcel_tracking": "1 of ann: depot\n2 of bob: depot\n2 of bob: door\n",
    "payment_rules": "ann: 2 payments of 110\nbob: 900\n",
    "shopping_cart": ("bob 1: 1 cup (added cup)\nann 1: 4 cup, 3 tea (added tea cup tea)\nbob 2: 5 tea (added tea)\n"),
    "tumbling_average": "roof 0..10000: 24.0\ncellar 0..10000: 12.0\nroof 10000..20000: 18.0\n",
    "session_clicks": (
        "bob, visit 1, 2000..8000: home\nann, visit 1, 1000..17000: home cart news\nann, visit 2, 30000..36000: home\n"
    ),
}

MODULES = {
    "varvite.common", "varvite.common.watermark_strategy", "varvite.datastream", "varvite.datastream.functions",
    "varvite.datastream.state", "varvite.datastream.window",
}  # fmt: skip


def printed(name: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> str:
    assert SparkSession.getActiveSession() is spark, "the program finds the session by itself"
    importlib.import_module(f"examples.pyflink_programs.{name}").main()
    return capsys.readouterr().out


UNORDERED = {"parcel_tracking", "payment_rules"}
"""Programs whose elements have no order among them: of several sources, or of timers of several keys."""


@pytest.mark.parametrize("name", OUTPUT)
def test_a_program_prints(name: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    ordered = sorted if name in UNORDERED else list[str]
    assert ordered(printed(name, spark, capsys).splitlines()) == ordered(OUTPUT[name].splitlines())


def test_words_are_counted(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in printed("word_count", spark, capsys).splitlines()]
    text = " ".join(importlib.import_module("examples.pyflink_programs.word_count").LINES)
    words = re.findall(r"[a-z]+", text.lower())
    assert lines == [[word, str(words[: i + 1].count(word))] for i, word in enumerate(words)]


@pytest.mark.long
def test_a_program_runs_without_any_configuration(tmp_path: Path) -> None:
    """No session, no storage, no parallelism, no PYSPARK_PYTHON: one partition per core, and the output says which.

    Workers are started with the program's Python, whatever is on the PATH, and no progress bar is on the terminal.
    """
    program = tmp_path / "program.py"
    source = (DIRECTORY / "count_function.py").read_text()
    program.write_text(source.replace("    env.set_parallelism(1)\n", ""))
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    other_python = tmp_path / "bin" / "python3"
    other_python.parent.mkdir()
    other_python.write_text("#!/bin/sh\nexit 1\n")
    other_python.chmod(0o755)
    search_path = f"{other_python.parent}:{os.environ['PATH']}"
    own = {"PYTHONPATH": path, "TMPDIR": str(tmp_path / "temporary"), "PATH": search_path}
    (tmp_path / "temporary").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"} | own
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "[Stage" not in done.stderr
    lines = [line.split("> ")[-1] for line in done.stdout.splitlines()]
    assert sorted(lines) == sorted(OUTPUT["count_function"].splitlines())
    assert not list((tmp_path / "temporary").glob("varvite-*/state")), "the state goes with the job"


def test_every_program_is_tested_and_imports_only_what_pyflink_has() -> None:
    programs = {path.stem: path for path in DIRECTORY.glob("*.py") if path.stem != "__init__"}
    assert set(programs) == {*OUTPUT, "word_count"}
    for path in programs.values():
        imported = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.Import, ast.ImportFrom))]
        modules = {node.module for node in imported if isinstance(node, ast.ImportFrom)}
        assert modules <= MODULES, path
        assert all(isinstance(node, ast.ImportFrom) for node in imported), path


def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = blocks_of("docs/guide/pyflink.md", (ROOT / "docs" / "guide" / "pyflink.md").read_text())
    programs = [block for block in page if "run" in block.tags]
    names = {"__name__": "page"}
    for block in programs:
        text = block.text.replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
        exec(compile(text, block.name, "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == "".join(block.text for block in page if block.language == "text")
