"""`varvite package`: the two files, from what is installed here and from wheels that pip finds."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.tidy.doc_blocks import ROOT, blocks_of, commands_of
from varvite.materializer.commands.cli import main
from varvite.materializer.commands.package import build as package_build
from varvite.materializer.commands.package import command as package_command
from varvite.materializer.commands.package.build import PackedFile, package_files, write_archive, write_zip
from varvite.materializer.commands.package.plan import Installed

PAGE = ROOT / "docs" / "operate" / "packaging.md"


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["package", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """varvite needs little: the real archive is 70 MB."""
    found = package_command.find_installed

    def find(name: str) -> Installed | None:
        if name == "s3fs":
            return None
        if name == "varvite":
            return Installed("varvite", "0.1.0", ("pyspark>=4.1", "sortedcontainers>=2.4"))
        return found(name)

    monkeypatch.setattr(package_command, "find_installed", find)


def test_the_two_files_hold_varvite_and_what_it_needs(small: None, tmp_path: Path) -> None:
    made: dict[str, Any] = json.loads(run("--output", str(tmp_path / "out"), "--with", "msgspec", "--json"))
    assert set(made["packages"]) == {"sortedcontainers", "msgspec"}
    assert made["python_version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert made["zip_bytes"] == Path(made["py_files"]).stat().st_size
    assert made["archive_bytes"] == Path(made["archives"]).stat().st_size
    with tarfile.open(made["archives"]) as archive:
        names = archive.getnames()
        # Debian 12's own Python, 3.11.2, has no filters yet; newer ones warn without.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "unpacked", **filtered)
    assert names == sorted(names)
    assert any(name.startswith("msgspec/_core.") for name in names)
    assert not any(".." in name or "__pycache__" in name for name in names)
    code = (
        "import varvite, varvite.storage.errors, varvite.changelog.segments.segment, sortedcontainers, msgspec\n"
        "print(varvite.__file__, sortedcontainers.__file__, msgspec.__file__)"
    )
    path = f"{made['py_files']}:{tmp_path / 'unpacked'}:{':'.join(p for p in sys.path if p)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    varvite, *others = done.stdout.split()
    assert varvite == f"{made['py_files']}/varvite/__init__.py"
    assert all(other.startswith(str(tmp_path / "unpacked")) for other in others)


def test_people_get_the_line_to_type(small: None, tmp_path: Path) -> None:
    output = run("--output", str(tmp_path))
    line = output.strip().splitlines()[-1]
    words = shlex.split(line)
    assert words[0] == "spark-submit"
    assert Path(words[words.index("--py-files") + 1]).is_file()
    assert Path(words[words.index("--archives") + 1].partition("#")[0]).is_file()


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
    write_zip(tmp_path / "varvite.zip", package_files())
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


def test_a_file_that_cannot_be_written_leaves_none_behind(tmp_path: Path) -> None:
    missing = PackedFile(tmp_path / "missing", "missing")
    with pytest.raises(Exception, match="cannot be written"):
        write_archive(tmp_path / "out.tar.gz", [missing], 1)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_installed_is_an_error_that_names_it(small: None, tmp_path: Path) -> None:
    output = run("--output", str(tmp_path / "out"), "--with", "no-such-package", code=2)
    assert "no-such-package is not installed here" in output
    assert not (tmp_path / "out").exists()


def test_a_link_to_sources_is_refused(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Linked:
        name, version = "linked", "9"
        requires = files = ()

        def read_text(self, name: str) -> str:
            return json.dumps({"dir_info": {"editable": True}})

    monkeypatch.setattr(package_build, "distribution", lambda name: Linked())
    assert "is a link to its sources" in " ".join(run("--output", str(tmp_path), code=2).split())


def wheel(directory: Path, name: str, version: str, tag: str) -> None:
    """A wheel with one module."""
    files = {
        f"{name}.py": f"PLATFORM = {tag!r}\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = f"{name}-{version}.dist-info/RECORD"
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}")
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in {**files, record: "\n".join([*lines, f"{record},,"]) + "\n"}.items():
            archive.writestr(path, text)


def test_wheels_for_another_platform_come_from_pip_in_the_versions_of_here(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [here] = [d for d in [package_build.find_installed("sortedcontainers")] if d is not None]
    tag = "cp313-cp313-manylinux_2_28_aarch64"
    for version in (here.version, "99.0"):
        wheel(tmp_path / "wheels", "sortedcontainers", version, tag)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    other = ("--platform", "manylinux_2_28_aarch64", "--python-version", "3.13")
    made = json.loads(run("--output", str(tmp_path / "out"), *other, "--json"))
    assert (made["python_version"], made["platforms"]) == ("3.13", ["manylinux_2_28_aarch64"])
    with tarfile.open(made["archives"]) as archive:
        assert f"sortedcontainers-{here.version}.dist-info/METADATA" in archive.getnames()
        module = archive.extractfile("sortedcontainers.py")
        assert module is not None
        assert tag in module.read().decode()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "pip could not get the wheels" in run("--output", str(tmp_path / "out"), *other, code=2)
