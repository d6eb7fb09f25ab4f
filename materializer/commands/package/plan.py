"""What executors need of varvite, as decisions: which distributions, which of their files, and how Spark is told; pure.

Spark imports pure Python from a zip (`--py-files`). A compiled module cannot be imported from one, so varvite's
dependencies travel in an archive (`--archives`), which Spark unpacks into each executor's working directory, where
`PYTHONPATH` finds them. The archive is a directory of packages and no environment with an interpreter of its own: it
has no absolute paths to relocate, and the executors' Python stays the one that the cluster chose.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import PurePosixPath

ROOT: Final = "varvite"
PROVIDED: Final = frozenset({"pyspark", "py4j"})
"""Distributions that an executor has from its Spark: another copy of another version must not come before them."""
ZIP_NAME: Final = "varvite.zip"
ARCHIVE_NAME: Final = "varvite-environment.tar.gz"
DIRECTORY: Final = "varvite-environment"
"""Where Spark unpacks the archive, below an executor's working directory."""
_NOT_NEEDED: Final = ("pyarrow/include/", "pyarrow/tests/", "pyarrow/src/")
"""Large, and never imported."""
_NOT_NEEDED_SUFFIXES: Final = frozenset({".pyc", ".pyi", ".h", ".hpp", ".pxd", ".pyx", ".a"})


@dataclass(frozen=True, slots=True)
class Installed:
    """A distribution as it is installed here."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    """Requirements as its metadata says them, with extras and markers."""


def normalized(name: str) -> str:
    """A distribution's name as names are compared: lower case, with single dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirements(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """What the user wants besides varvite. Raises `InvalidRequestError` if a text is no requirement."""
    try:
        return tuple(Requirement(text) for text in texts)
    except InvalidRequirement as error:
        raise InvalidRequestError(f"this is not the name of a package: {error}") from error


def needed(
    roots: Sequence[Requirement], find: Callable[[str], Installed | None], environment: Mapping[str, str]
) -> tuple[Installed, ...]:
    """The roots and everything that they need, by name, without what the cluster's Spark provides.

    Args:
        roots: With extras, if any.
        find: Gives an installed distribution by its normalized name.
        environment: For markers such as `python_version`.

    Raises:
        InvalidRequestError: something that is needed is not installed, or in a version that does not fit.
    """
    found: dict[str, Installed] = {}
    done: set[tuple[str, str]] = set()
    waiting = deque((root, ROOT) for root in roots)
    while waiting:
        requirement, asker = waiting.popleft()
        name = normalized(requirement.name)
        if name in PROVIDED:
            continue
        installed, plain = find(name), _text(requirement)
        if installed is None:
            raise InvalidRequestError(f"{name} is not installed here, and {asker} needs it: pip install '{plain}'")
        if not requirement.specifier.contains(installed.version, prereleases=True):
            raise InvalidRequestError(
                f"{asker} needs {plain}, but {installed.version} is installed here: pip install '{plain}'"
            )
        found[name] = installed
        for extra in ("", *requirement.extras):
            if (name, extra) not in done:
                done.add((name, extra))
                wanted = map(Requirement, installed.requires)
                waiting.extend((r, installed.name) for r in wanted if _applies(r, extra, environment))
    return tuple(found[name] for name in sorted(found))


def _applies(requirement: Requirement, extra: str, environment: Mapping[str, str]) -> bool:
    """Whether the requirement comes with this extra and not already without one."""
    marker = requirement.marker
    if marker is None:
        return not extra
    is_plain = marker.evaluate({**environment, "extra": ""})
    return is_plain if not extra else not is_plain and marker.evaluate({**environment, "extra": extra})


def is_packed(path: PurePosixPath) -> bool:
    """Whether a file of a distribution, relative to the directory of packages, goes into the archive."""
    text = str(path)
    if path.is_absolute() or ".." in path.parts or "__pycache__" in path.parts:
        return False  # scripts lie outside of the packages, and point to an interpreter of this machine
    return path.suffix not in _NOT_NEEDED_SUFFIXES and not text.startswith(_NOT_NEEDED)


def direct_requirements(installed: Installed, extras: frozenset[str], environment: Mapping[str, str]) -> list[str]:
    """What varvite itself asks for, without what Spark provides; what these need in turn pip finds."""
    wanted = [Requirement(text) for text in installed.requires]
    taken = [r for r in wanted if any(_applies(r, extra, environment) for extra in ("", *sorted(extras)))]
    return [_text(r) for r in taken if normalized(r.name) not in PROVIDED]


def _text(requirement: Requirement) -> str:
    """Without its marker."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def pip_arguments(
    requirements: Sequence[str], target: str, constraints: str, platforms: Sequence[str], python_version: str | None
) -> list[str]:
    """Arguments of pip that put wheels for another platform or Python into the directory `target`.

    Args:
        requirements: What is wanted.
        target: The directory.
        constraints: A file of pip's that pins the versions which are installed here.
        platforms: Wheel tags such as `manylinux_2_28_aarch64`; none: this platform.
        python_version: Such as 3.12; None: this one.
    """
    arguments = ["install", "--disable-pip-version-check", "--no-input", "--no-compile", "--only-binary=:all:"]
    arguments += ["--target", target, "--constraint", constraints]
    for platform in platforms:
        arguments += ["--platform", platform]
    if python_version is not None:
        arguments += ["--implementation", "cp", "--python-version", python_version]
    return [*arguments, *requirements]


def submit_arguments(zip_path: str, archive_path: str) -> list[str]:
    """The arguments of `spark-submit` that give executors what was packaged."""
    return [
        "--py-files",
        zip_path,
        "--archives",
        f"{archive_path}#{DIRECTORY}",
        "--conf",
        f"spark.executorEnv.PYTHONPATH={DIRECTORY}",
    ]


def submit_line(zip_path: str, archive_path: str) -> str:
    """The same as a line to type."""
    return shlex.join(["spark-submit", *submit_arguments(zip_path, archive_path), "job.py"])
