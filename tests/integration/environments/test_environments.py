"""The wheel in environments of its own: with the lowest versions that it allows, with the newest, and alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.environments.declared import DEPENDENCIES, lowest, of_tests
from tests.spark.test_documents import counts, readme_job, write_flights
from tests.tidy.built_wheel import build_wheel
from tests.tidy.project_files import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.rare, pytest.mark.timeout(3_600)]

TOOLS = of_tests("pytest", "pytest-timeout", "hypothesis", "boto3", "moto", "protobuf", "psutil")
"""The requirements of the tests that are run, but for extras of the product: s3fs allows one version of fsspec."""
TESTS = (
    "tests/golden",
    "tests/contract/operator_harness",
    "tests/spark/job/test_streaming_query.py",
    "tests/spark/progress/test_spark_watermarks.py",
)
"""Formats of state; functions of all kinds; queries; and what is read of Spark's inner classes."""
CLEARED = (
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "PYTEST_ADDOPTS",
    "PYTEST_CURRENT_TEST",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("built"))


class Environment:
    """A virtual environment with packages of its own."""

    def __init__(self, directory: Path, *requirements: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        self.python = directory / "bin" / "python"
        self.run("-m", "pip", "install", "--disable-pip-version-check", "--quiet", *requirements)
        self.run("-m", "pip", "check")
        imported = self.run("-c", "import varvite; print(varvite.__file__)")
        assert imported.startswith(str(directory)), "the wheel is used, and not these sources"

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run its Python to the end, as a user who has not activated the environment; what it printed."""
        environment = {name: value for name, value in os.environ.items() if name not in CLEARED}
        done = subprocess.run(
            [str(self.python), *arguments], cwd=cwd or self.python.parent, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_chosen_tests_pass_with(versions: str, wheel: Path, tmp_path: Path) -> None:
    pinned = [lowest(text) for text in DEPENDENCIES] if versions == "lowest" else []
    environment = Environment(tmp_path / "venv", str(wheel), *pinned, *TOOLS)
    printed = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, cwd=ROOT)
    assert " passed" in printed
    assert " skipped" not in printed


def test_the_wheel_alone_runs_the_readmes_job(wheel: Path, tmp_path: Path) -> None:
    """pandas was not among the dependencies, and no test without extras told so."""
    environment = Environment(tmp_path / "venv", str(wheel))
    write_flights(tmp_path)
    job = tmp_path / "job.py"
    job.write_text(readme_job(tmp_path))
    environment.run(str(job), cwd=tmp_path)
    assert counts(tmp_path) == [("N1", 1), ("N1", 2), ("N2", 1)]
