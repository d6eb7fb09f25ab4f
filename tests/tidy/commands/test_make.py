"""The commands of the Makefile start what they say; `--dry-run` shows the recipe without installing anything."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy.project_files import ROOT

# The tests themselves run under make: a make below must not take over its flags and level.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
FIGURES = {
    "bench-ack": "ack_state_size",
    "bench-trigger": "trigger_interval",
    "bench-latency": "trigger_latency",
    "bench-bill": "requests_and_bill",
    "bench-recovery": "recovery",
    "bench-space": "space",
    "bench-materializer": "materializer_speed",
}
"""Command → module, of what `make bench` measures."""


def recipe_of(*arguments: str) -> str:
    """The lines that make would run for these arguments."""
    done = subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout


def runs_of(*arguments: str) -> list[str]:
    """The two commands that run tests."""
    return [line for line in recipe_of(*arguments).splitlines() if "-m pytest -p tests.kind_summary" in line]


def test_make_alone_lists_the_commands() -> None:
    done = subprocess.run(["make"], cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    documented = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "check"} <= set(documented)
    for target in documented:
        assert f"make {target} " in done.stdout


@pytest.mark.parametrize(
    ("target", "module", "arguments"),
    [
        ("demo", "examples.flights", ""),
        ("demo-crash", "examples.flights", " --crash"),
        ("demo-kafka", "examples.orders", ""),
    ],
)
def test_the_demo_commands_start_the_example(target: str, module: str, arguments: str) -> None:
    recipe = recipe_of(target)
    assert f"-m {module}{arguments}" in recipe
    assert importlib.util.find_spec(module) is not None
    assert "deploy/ensure_java.sh" in recipe


@pytest.mark.parametrize(
    ("target", "modules"),
    [
        ("bench-smoke", ["smoke"]),
        ("bench-state", ["state_access"]),
        ("bench-changelog", ["changelog_cost"]),
        *((target, [module]) for target, module in FIGURES.items()),
        ("bench", [*FIGURES.values(), "harness.report_page"]),
        ("bench-all", [*FIGURES.values(), "smoke", "state_access", "changelog_cost", "timers", "windows"]),
    ],
)
def test_the_benchmark_commands_start_the_benchmarks(target: str, modules: list[str]) -> None:
    """They run with small sizes in tests/spark/test_benchmarks.py and tests/unit/benchmarks."""
    recipe = recipe_of(target, "BENCH_ARGS=--some option")
    for module in modules:
        assert module in recipe
        assert importlib.util.find_spec(f"benchmarks.{module}") is not None
    if len(modules) == 1:
        assert recipe.rstrip().endswith(f"-m benchmarks.{modules[0]} --some option")


def test_the_report_is_written_last() -> None:
    assert recipe_of("bench").rstrip().endswith("-m benchmarks.harness.report_page")
    assert recipe_of("bench-report").rstrip().endswith("-m benchmarks.harness.report_page")


def test_make_test_installs_its_own_environment(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    recipe = recipe_of("test", f"VENV={venv}")
    made = [
        recipe.index(part)
        for part in ("deploy/ensure_java.sh", f"deploy/make_venv.sh {venv}", "--editable '.[test]'", "-m pytest")
    ]
    assert made == sorted(made)


def test_spark_workers_run_with_the_python_of_the_environment() -> None:
    """Spark starts them with `python3` from the PATH, where nothing of ours is installed."""
    show = ["make", "--eval", "show: ; @echo $$PYSPARK_PYTHON $$PYSPARK_DRIVER_PYTHON", "show", "VENV=somewhere"]
    done = subprocess.run(show, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(ROOT / "somewhere" / "bin" / "python")] * 2


def test_make_test_runs_kinds_in_order_and_nothing_else() -> None:
    for target in ("test", "test-long", "test-all"):
        *clusters, quick, waiting = runs_of(target)
        kinds = ["unit", "property", "contract", "golden", "tidy", "simulation"]
        assert re.findall(r" tests/(\S+)", quick) == kinds
        assert re.findall(r" tests/(\S+)", waiting) == ["integration", "spark"]
        # Each test runs once: those with clusters of executors by themselves, if they are many, beside the quick ones.
        assert [re.findall(r" (tests/\S+)", run) for run in clusters] == [["tests/spark/cluster"]] * len(clusters)
        assert (" --ignore=tests/spark/cluster " in waiting) == bool(clusters) == (target != "test")
        for run, processes in ((quick, 2 if clusters else 4), (waiting, 2), *((run, 1) for run in clusters)):
            assert f" -n auto --dist worksteal --maxprocesses {processes} " in run


def test_make_test_leaves_out_no_kind() -> None:
    with_tests = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    for target in ("test", "test-long", "test-all"):
        assert set(re.findall(r" tests/(\w+)", " ".join(runs_of(target)))) == with_tests


def test_make_test_passes_arguments_on() -> None:
    """If they leave no test of one of the runs, that is no failure."""
    for run in runs_of("test", "PYTEST_ARGS=-x -k chain"):
        assert run.endswith("-x -k chain || [ $? -eq 5 ]")


def test_make_test_all_lists_what_was_skipped() -> None:
    for run in runs_of("test-all"):
        assert " -rs " in run
        assert "not long" not in run


def test_the_tests_that_make_test_leaves_out_are_those_of_test_long() -> None:
    for run in runs_of("test"):
        assert " -m 'not long and not rare' " in run
    for run in runs_of("test-long"):
        assert " -m 'long and not rare' " in run


def test_ci_runs_the_readme_test_command_and_then_what_it_leaves_out() -> None:
    """The README promises two commands; CI must run the second one as it stands there."""
    readme = (ROOT / "README.md").read_text()
    assert "$ make test\n" in readme
    steps = re.findall(r"^step '(make .*)' (make .*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert [command for _, command in steps][-2:] == ["make test", "make test-long"]
    assert all(name == command for name, command in steps)
