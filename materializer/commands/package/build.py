"""Makes the files that `varvite package` names: the zip of varvite, and the archive of what it needs; thin I/O.

Both are reproducible: the same packages give the same bytes, so that a cache of Spark's or of an object store keeps
them. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

import varvite
from varvite.materializer.commands.package.plan import ROOT, Installed, is_packed, normalized, pip_arguments
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_FILE_MODE: Final = 0o644
_PIP_OUTPUT_LINES: Final = 15


class PackedFile(NamedTuple):
    """A file here, and its name in the archive."""

    path: Path
    name: str


def find_installed(name: str) -> Installed | None:
    """A distribution of this environment by its name; None if there is none."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    return Installed(found.name, found.version, tuple(found.requires or ()))


def package_files() -> list[PackedFile]:
    """The modules of varvite itself.

    Raises `InvalidRequestError` if varvite does not run from a directory.
    """
    package = Path(varvite.__file__).parent
    if not package.is_dir():
        raise InvalidRequestError(
            f"varvite runs from {package.parent}; run `varvite package` where varvite is installed"
        )
    found: list[PackedFile] = []
    # The directories of a development checkout are links.
    for directory, subdirectories, names in os.walk(package, followlinks=True):
        subdirectories[:] = [name for name in subdirectories if name != "__pycache__"]
        for name in names:
            path = Path(directory, name)
            if path.suffix != ".pyc":
                found.append(PackedFile(path, f"{ROOT}/{path.relative_to(package).as_posix()}"))
    return sorted(found, key=lambda file: file.name)


def distribution_files(installed: Sequence[Installed]) -> list[PackedFile]:
    """The files of distributions of this environment, but for varvite's, which has its own zip.

    Raises:
        InvalidRequestError: a distribution was not installed from a wheel, so its files are not known.
    """
    found: dict[str, Path] = {}
    for wanted in installed:
        if normalized(wanted.name) != ROOT:
            for file in _files(distribution(wanted.name)):
                found[file.name] = file.path
    return [PackedFile(found[name], name) for name in sorted(found)]


def _files(found: Distribution) -> Iterable[PackedFile]:
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if found.files is None or origin.get("dir_info", {}).get("editable"):
        raise InvalidRequestError(
            f"the files of {found.name} are not known, because it was not installed from a wheel or is a link to its "
            f"sources; install it anew: pip install --force-reinstall --no-deps {found.name}"
        )
    for file in found.files:
        path = Path(str(file.locate()))
        if is_packed(PurePosixPath(file.as_posix())) and path.is_file():
            yield PackedFile(path, file.as_posix())


def directory_files(directory: Path) -> list[PackedFile]:
    """What lies in a directory that pip has filled."""
    found = (PackedFile(path, path.relative_to(directory).as_posix()) for path in directory.rglob("*"))
    return sorted((f for f in found if f.path.is_file() and is_packed(PurePosixPath(f.name))), key=lambda f: f.name)


@contextmanager
def downloaded(
    requirements: Sequence[str], pins: Iterable[Installed], platforms: Sequence[str], python_version: str | None
) -> Generator[Path]:
    """A directory into which pip has put wheels for another platform or Python, until the block ends.

    Args:
        requirements: What is wanted.
        pins: Whichever of these is taken has this version.
        platforms: See `package_plan.pip_arguments`.
        python_version: The same.

    Raises:
        InvalidRequestError: there is no pip here, or it has found no wheels.
    """
    with tempfile.TemporaryDirectory(prefix="varvite-package-") as name:
        target, constraints = Path(name, "packages"), Path(name, "constraints.txt")
        constraints.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins))
        arguments = pip_arguments(requirements, str(target), str(constraints), platforms, python_version)
        command = [sys.executable, "-m", "pip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own interpreter
        if done.returncode:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-_PIP_OUTPUT_LINES:])
            raise InvalidRequestError(f"pip could not get the wheels ({' '.join(command[1:])}):\n{output}")
        yield target


def write_zip(path: Path, files: Iterable[PackedFile]) -> int:
    """Write the zip for `--py-files`; its size in bytes."""
    with _whole(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.name, _ZIP_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _FILE_MODE << 16
            archive.writestr(entry, file.path.read_bytes())
    return path.stat().st_size


def write_archive(path: Path, files: Iterable[PackedFile], level: int) -> int:
    """Write the archive for `--archives`, a compressed tar; its size in bytes.

    Args:
        path: Where.
        files: In order.
        level: Of gzip, 0 to 9.
    """
    with (
        _whole(path) as partial,
        partial.open("wb") as raw,
        # With a time in its header the file would differ from run to run.
        gzip.GzipFile("", "wb", level, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = file.path.stat().st_size, file.path.stat().st_mode & 0o755 | _FILE_MODE
            with file.path.open("rb") as content:
                archive.addfile(entry, content)
    return path.stat().st_size


@contextmanager
def _whole(path: Path) -> Generator[Path]:
    """A name beside `path` to write to, which takes its place when the block ends well."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
