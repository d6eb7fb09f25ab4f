"""The layout that everything else relies on: links, the built packages, and lists that name directories."""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.built_wheel import PACKAGES, build_wheel
from tests.tidy.project_files import ROOT

EXPORTS = ("common", "datastream", "extending", "java_gateway", "metrics", "table", "testing", "util")
"""Packages of `src/varvite` that export what the others hold: under PyFlink's names of modules, for extensions, and for
tests."""
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_a_relative_link_to_its_top_level_directory(package: str) -> None:
    """A copy instead of a link would leave two versions of every module; an absolute link breaks every clone."""
    link = ROOT / "src" / "varvite" / package
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", package)
    assert (ROOT / package / "__init__.py").is_file()


def test_src_varvite_holds_nothing_besides_the_links_and_its_own_files() -> None:
    own = {"__init__.py", "py.typed", "__pycache__"}
    assert {path.name for path in (ROOT / "src" / "varvite").iterdir()} <= {*PACKAGES, *EXPORTS, *own}
    assert {path.name for path in (ROOT / "src").iterdir()} <= {"varvite", "varvite.egg-info"}


def test_no_other_link_is_committed() -> None:
    """A link to a tool's directory of the author's machine takes the place of that directory in every clone."""
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    links = {line.split("\t")[1] for line in listed.splitlines() if line.startswith("120000 ")}
    assert links == {f"src/varvite/{package}" for package in PACKAGES}


def test_the_type_checker_is_told_of_every_package() -> None:
    """pyright follows a link only if it is named itself: `src/varvite` alone would check one file."""
    pyright = CONFIG["tool"]["pyright"]
    links = {f"src/varvite/{package}" for package in PACKAGES}
    assert links | {f"src/varvite/{package}" for package in EXPORTS} <= set(pyright["include"])
    assert set(pyright["strict"]) == links - {"src/varvite/spark_integration"}


def test_make_test_runs_every_directory_of_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    kinds = next(line for line in makefile.splitlines() if line.startswith("KINDS :=")).removeprefix("KINDS :=").split()
    with_tests = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert with_tests <= set(kinds)


def _own_modules() -> set[str]:
    modules = {"varvite/__init__.py", "varvite/py.typed"}
    for package in EXPORTS:
        modules |= {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "varvite" / package).rglob("*.py")}
    for package in PACKAGES:
        modules |= {f"varvite/{path.relative_to(ROOT)}" for path in (ROOT / package).rglob("*.py")}
    return modules


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    home = tmp_path_factory.mktemp("wheel")
    return zipfile.ZipFile(build_wheel(home))


def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packaged == _own_modules()


def test_the_wheel_has_the_console_script_and_the_license(wheel: zipfile.ZipFile) -> None:
    info = {name.split(".dist-info/")[1]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "varvite = varvite.materializer.commands.cli:main" in wheel.read(info["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in info


def test_only_the_contracts_need_pytest() -> None:
    """A job that has varvite installed has no pytest."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules += [path for path in (ROOT / "src" / "varvite").rglob("*.py") if path.parent.name != "contracts"]
    assert [path for path in modules if re.search(r"^\s*(import|from) pytest\b", path.read_text(), re.MULTILINE)] == []
