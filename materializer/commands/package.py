"""`varvite package`: the files that `spark-submit` sends to executors that lack varvite.

Spark imports pure Python from a zip (`--py-files`). A compiled module cannot be imported from a zip, so the packages
that varvite needs travel in an archive (`--archives`): Spark unpacks it into each executor's working directory, where
`PYTHONPATH` names it. The archive is a directory of packages, not an environment with an interpreter: nothing in it
depends on a path. It fits executors with this platform and this minor version of Python; for others, and for whole
environments, docs/operate/packaging.md shows venv-pack and PEX.
"""

from __future__ import annotations

import gzip
import os
import shlex
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import varvite
from varvite.materializer.commands.output.lines import json_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.metadata import Distribution

PROVIDED: Final = frozenset({"pyspark", "py4j"})
"""Distributions that executors have from their Spark."""
ZIP_NAME: Final = "varvite.zip"
ARCHIVE_NAME: Final = "varvite-environment.tar.gz"
DIRECTORY: Final = "varvite-environment"
"""Directory of the unpacked archive, below an executor's working directory."""
_COMPRESS_LEVEL: Final = 4
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_SKIPPED_SUFFIXES: Final = frozenset({".pyc", ".pyi", ".h", ".hpp", ".pxd", ".pyx", ".a"})
_STORAGE_CLIENTS: Final = ("adlfs", "gcsfs", "obstore", "s3fs")
"""Packages of extras that are packed if they are installed."""


class Packaged(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `varvite package --json`."""

    py_files: str
    archives: str
    packages: dict[str, str]
    """Packages of the archive, with their versions."""
    spark_submit: tuple[str, ...]
    """Arguments of `spark-submit`."""


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="here",
    help="Directory of the two files.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def package(*, output: Path, as_json: bool) -> None:
    """Write varvite.zip, and an archive of the packages that it needs, for executors that have neither.

    The packages are those that are installed here; nothing is downloaded. Executors need Spark, and the platform and
    the minor version of Python of this machine.
    """
    try:
        packaged = _package(output)
    except InvalidRequestError as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error}") from error
    if as_json:
        click.echo(json_of(packaged))
        return
    click.echo(f"{packaged.py_files}: varvite\n{packaged.archives}: {len(packaged.packages)} packages. Submit with:\n")
    click.echo(shlex.join(["spark-submit", *packaged.spark_submit, "job.py"]))


def _package(output: Path) -> Packaged:
    distributions = needed_distributions()
    files = {name: path for d in distributions.values() for name, path in _files_of(d)}
    output.mkdir(parents=True, exist_ok=True)
    zip_path, archive_path = output / ZIP_NAME, output / ARCHIVE_NAME
    write_zip(zip_path)
    write_archive(archive_path, files)
    return Packaged(
        py_files=str(zip_path),
        archives=str(archive_path),
        packages={name: d.version for name, d in sorted(distributions.items())},
        spark_submit=(
            *("--py-files", str(zip_path), "--archives", f"{archive_path}#{DIRECTORY}"),
            *("--conf", f"spark.executorEnv.PYTHONPATH={DIRECTORY}"),
        ),
    )


def needed_distributions() -> dict[str, Distribution]:
    """The installed distributions that varvite needs, by name; with clients of storages that are installed.

    Raises `InvalidRequestError` if one is missing.
    """
    needed: dict[str, Distribution] = {}
    clients = [name for name in _STORAGE_CLIENTS if _find(name)]
    pending = [(Requirement(name), "varvite package") for name in ("varvite", *clients)]
    seen: set[str] = set()
    while pending:
        requirement, user = pending.pop()
        name = canonicalize_name(requirement.name)
        if name in PROVIDED or str(requirement) in seen:
            continue
        seen.add(str(requirement))
        installed = _find(name)
        if installed is None:
            raise InvalidRequestError(f"{name} is not installed here, and {user} needs it: pip install '{name}'")
        needed[name] = installed
        for text in installed.requires or ():
            inner = Requirement(text)
            extras = ("", *requirement.extras)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append((inner, name))
    del needed["varvite"]
    return needed


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _files_of(packed: Distribution) -> Iterator[tuple[str, Path]]:
    """Name in the archive and path of each file; scripts outside of the packages, caches and headers are skipped."""
    if packed.files is None or '"editable": true' in (packed.read_text("direct_url.json") or ""):
        raise InvalidRequestError(
            f"the files of {packed.name} are not known, because it was not installed from a wheel; install it again: "
            f"pip install --force-reinstall --no-deps {packed.name}"
        )
    for file in packed.files:
        path = Path(str(file.locate()))
        if ".." not in file.parts and file.suffix not in _SKIPPED_SUFFIXES and path.is_file():
            yield file.as_posix(), path


def write_zip(path: Path) -> None:
    """Write the modules of varvite itself. The same modules give the same bytes, which caches recognise."""
    root = Path(varvite.__file__).parent
    if not root.is_dir():
        raise InvalidRequestError(f"varvite runs from {root.parent}; run this command where varvite is installed")
    # The directories of a development checkout are links.
    files = sorted(Path(top, name) for top, _, names in os.walk(root, followlinks=True) for name in names)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if file.suffix != ".pyc":
                entry = zipfile.ZipInfo(f"varvite/{file.relative_to(root).as_posix()}", _ZIP_TIME)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, file.read_bytes())


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """Write files under their names in the archive. The same files give the same bytes."""
    with (
        path.open("wb") as raw,
        # With a time in its header the file would differ from run to run.
        gzip.GzipFile("", "wb", _COMPRESS_LEVEL, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, file.stat().st_mode & 0o755 | 0o644
            with file.open("rb") as content:
                archive.addfile(entry, content)
