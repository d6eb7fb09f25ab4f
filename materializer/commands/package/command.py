"""`varvite package`: what `spark-submit` has to send to executors that have nothing of varvite."""

from __future__ import annotations

import platform
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from packaging.markers import default_environment
from packaging.requirements import Requirement
from rich.console import Console
from rich.progress import Progress

from varvite.materializer.commands.package.build import (
    directory_files,
    distribution_files,
    downloaded,
    find_installed,
    package_files,
    write_archive,
    write_zip,
)
from varvite.materializer.commands.package.plan import (
    ARCHIVE_NAME,
    PROVIDED,
    ROOT,
    ZIP_NAME,
    direct_requirements,
    needed,
    normalized,
    parse_requirements,
    submit_arguments,
    submit_line,
)
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.units import format_size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varvite.materializer.commands.package.build import PackedFile

S3: Final = "s3fs"
"""With it installed, executors get it, too: varvite's extra `s3`."""


class Packaged(msgspec.Struct, frozen=True, kw_only=True):
    """What `varvite package --json` prints."""

    py_files: str
    archives: str
    python_version: str
    """Of the executors: compiled modules run with no other."""
    platforms: tuple[str, ...]
    packages: dict[str, str]
    """Of the archive, with their versions. When pip chose them, those that it was held to."""
    zip_bytes: int
    archive_bytes: int
    spark_submit: tuple[str, ...]
    """Arguments."""


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="here",
    help="Directory for the two files.",
)
@click.option("--with", "extra", multiple=True, metavar="PACKAGE", help="Pack this one and what it needs, too.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="TAG",
    help="Of the executors, as in names of wheels, if it is not this one: pip downloads the wheels.",
)
@click.option("--python-version", metavar="X.Y", help="Of the executors, if it is not this one: pip downloads.")
@click.option(
    "--compression", type=click.IntRange(0, 9), default=6, show_default=True, help="gzip's level for the archive."
)
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def package(
    *,
    output: Path,
    extra: tuple[str, ...],
    platforms: tuple[str, ...],
    python_version: str | None,
    compression: int,
    as_json: bool,
) -> None:
    """Build what spark-submit sends to executors that have nothing of varvite installed.

    The files are those that are installed here, so nothing is downloaded, unless the executors have another platform or
    another version of Python. The cluster needs Spark and a Python of that version, and no network.
    """
    try:
        made = _made(output, extra, platforms, python_version, compression, quiet=as_json)
    except InvalidRequestError as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(made).decode())
        return
    click.echo(f"{made.py_files}: varvite, {format_size_bytes(made.zip_bytes)}")
    click.echo(f"{made.archives}: {len(made.packages)} packages, {format_size_bytes(made.archive_bytes)}")
    click.echo(f"For executors with Python {made.python_version} on {', '.join(made.platforms)}. Submit with:\n")
    click.echo(submit_line(made.py_files, made.archives))


def _made(
    output: Path,
    extra: Sequence[str],
    platforms: Sequence[str],
    python_version: str | None,
    compression: int,
    *,
    quiet: bool,
) -> Packaged:
    environment = {key: str(value) for key, value in default_environment().items()}
    roots = (_root(), *parse_requirements(extra))
    packages = [p for p in needed(roots, find_installed, environment) if normalized(p.name) != ROOT]
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequestError(f"the directory {output} cannot be made: {error}") from error
    zip_path, archive_path = output / ZIP_NAME, output / ARCHIVE_NAME
    with ExitStack() as stack:
        if platforms or python_version is not None:
            wanted = _wanted(roots, environment)
            files = directory_files(stack.enter_context(downloaded(wanted, packages, platforms, python_version)))
        else:
            files = distribution_files(packages)
        zip_bytes = write_zip(zip_path, package_files())
        archive_bytes = write_archive(archive_path, _shown(files, quiet=quiet), compression)
    return Packaged(
        py_files=str(zip_path),
        archives=str(archive_path),
        python_version=python_version or f"{sys.version_info.major}.{sys.version_info.minor}",
        platforms=tuple(platforms) or (f"{platform.system()} {platform.machine()}",),
        packages={p.name: p.version for p in packages},
        zip_bytes=zip_bytes,
        archive_bytes=archive_bytes,
        spark_submit=tuple(submit_arguments(str(zip_path), str(archive_path))),
    )


def _root() -> Requirement:
    """varvite, with the extra `s3` if that is installed."""
    return Requirement(f"{ROOT}[s3]" if find_installed(S3) is not None else ROOT)


def _wanted(roots: Sequence[Requirement], environment: Mapping[str, str]) -> list[str]:
    """What pip is asked for: varvite's own requirements, because varvite itself asks for pyspark."""
    own = find_installed(ROOT)
    if own is None:
        raise InvalidRequestError("varvite is not installed here, so what it needs is not known: pip install it")
    wanted = direct_requirements(own, frozenset(roots[0].extras), environment)
    return wanted + [str(root) for root in roots[1:] if normalized(root.name) not in PROVIDED]


def _shown(files: Sequence[PackedFile], *, quiet: bool) -> Iterator[PackedFile]:
    """The files one by one, with a bar for people."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        yield from progress.track(files, description="packing")
