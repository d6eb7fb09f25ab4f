"""`varvite package`: the zip of varvite, and the archive of the installed packages that it needs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.tidy.pages.doc_blocks import ROOT, blocks_of, commands_of
from varvite.materializer.commands import package as package_command
from varvite.materializer.commands.cli import main
from varvite.materializer.commands.package import needed_distributions, write_zip

PAGE = ROOT / "docs" / "operate" / "packaging.md"


class Fake:
    """An installed distribution; its files are those of a real one."""

    def __init__(self, name: str, requires: tuple[str, ...] = (), files: Any = ()) -> None:
        self.name, self.version, self.requires, self.files = name, "1.0", list(requires), files

    def read_text(self, name: str) -> str:
        return json.dumps({"url": "file:///sources", "dir_info": {"editable": True}})


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["package", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """varvite needs little: the real archive is 70 MB."""
    install(monkeypatch, Fake("varvite", ("pyspark>=4.1", "sortedcontainers>=2.4", "msgspec>=0.18")))


def install(monkeypatch: pytest.MonkeyPatch, *fakes: Fake, real: bool = True) -> None:
    installed = {fake.name: fake for fake in fakes}

    def find(name: str) -> Any:
        if name in installed:
            return installed[name]
        if name in {"adlfs", "gcsfs", "obstore", "s3fs"} or not real:
            raise PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(package_command, "distribution", find)


def test_the_two_files_hold_varvite_and_what_it_needs(small: None, tmp_path: Path) -> None:
    packaged: dict[str, Any] = json.loads(run("--output", str(tmp_path / "out"), "--json"))
    assert set(packaged["packages"]) == {"sortedcontainers", "msgspec"}
    with tarfile.open(packaged["archives"]) as archive:
        names = archive.getnames()
        # Debian 12's own Python, 3.11.2, has no filters yet; newer ones warn without.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "unpacked", **filtered)
    assert names == sorted(names)
    assert any(name.startswith("msgspec/_core.") for name in names)
    assert not any(".." in name or "__pycache__" in name or name.endswith(".pyi") for name in names)
    code = (
        "import varvite, varvite.storage.errors, varvite.changelog.segments.segment, sortedcontainers, msgspec\n"
        "print(varvite.__file__, sortedcontainers.__file__, msgspec.__file__)"
    )
    path = f"{packaged['py_files']}:{tmp_path / 'unpacked'}:{':'.join(p for p in sys.path if p)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    varvite, *others = done.stdout.split()
    assert varvite == f"{packaged['py_files']}/varvite/__init__.py"
    assert all(other.startswith(str(tmp_path / "unpacked")) for other in others)


def test_people_get_the_line_to_type(small: None, tmp_path: Path) -> None:
    words = shlex.split(run("--output", str(tmp_path / "a dir")).strip().splitlines()[-1])
    assert words == [
        "spark-submit",
        "--py-files",
        f"{tmp_path}/a dir/varvite.zip",
        "--archives",
        f"{tmp_path}/a dir/varvite-environment.tar.gz#varvite-environment",
        "--conf",
        "spark.executorEnv.PYTHONPATH=varvite-environment",
        "job.py",
    ]


def test_the_command_of_the_page_runs(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("docs/operate/packaging.md", PAGE.read_text())
    [command] = [c for block in blocks if block.language == "console" for c in commands_of(block)]
    output = run(*shlex.split(command)[2:])
    assert [path.name for path in sorted(Path("lib").iterdir())] == ["varvite-environment.tar.gz", "varvite.zip"]
    shown = [block for block in blocks if block.language == "text"]
    assert shlex.split(shown[0].text) == shlex.split(output.strip().splitlines()[-1])


def test_the_same_packages_give_the_same_bytes(small: None, tmp_path: Path) -> None:
    first, second = (json.loads(run("--output", str(tmp_path / name), "--json")) for name in ("a", "b"))
    for key in ("py_files", "archives"):
        assert Path(first[key]).read_bytes() == Path(second[key]).read_bytes()


def test_every_module_of_varvite_is_in_the_zip(tmp_path: Path) -> None:
    write_zip(tmp_path / "varvite.zip")
    with zipfile.ZipFile(tmp_path / "varvite.zip") as archive:
        names = set(archive.namelist())
    assert {
        "varvite/__init__.py",
        "varvite/py.typed",
        "varvite/storage/errors.py",
        "varvite/changelog/segments/segment.py",
        "varvite/materializer/commands/cli.py",
        "varvite/spark_integration/transport/pump.py",
        "varvite/datastream/__init__.py",
    } <= names
    assert not any("__pycache__" in name for name in names)


def test_extras_and_markers_say_what_else_is_needed_and_circles_end(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        Fake("varvite", ("pyspark>=4.1", "rocks_dict>=0.3", "s3fs>=1; extra == 's3'", "x; extra == 'web'")),
        Fake("rocks-dict"),
        Fake("s3fs", ("aio[fast]>=3", "old; python_version < '3'", "win; sys_platform == 'win32'")),
        Fake("aio", ("quick; extra == 'fast'", "slow; extra == 'slow'", "s3fs")),
        Fake("quick", ("py4j",)),
        real=False,
    )
    assert sorted(needed_distributions()) == ["aio", "quick", "rocks-dict", "s3fs"]


def test_the_clients_of_storages_that_are_installed_are_packed_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ("obstore>=0.12; extra == 's3'", "s3fs>=1; extra == 's3'")
    install(monkeypatch, Fake("varvite", both), Fake("obstore", ("typing-extensions",)), Fake("typing-extensions"))
    assert sorted(needed_distributions()) == ["obstore", "typing-extensions"]


def test_a_missing_package_is_an_error_that_names_it_and_its_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, Fake("varvite", ("no-such-package>=2",)))
    output = " ".join(run("--output", str(tmp_path / "out"), code=2).split())
    assert "no-such-package is not installed here, and varvite needs it" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("files", [pytest.param(None, id="no wheel"), pytest.param((), id="a link to sources")])
def test_a_package_whose_files_are_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: Any
) -> None:
    install(monkeypatch, Fake("varvite", ("linked",)), Fake("linked", files=files))
    assert "the files of linked are not known" in " ".join(run("--output", str(tmp_path), code=2).split())
