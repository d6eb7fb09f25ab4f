"""Decisions of `varvite package` about what it packs."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

import pytest
from packaging.requirements import Requirement

from varvite.materializer.commands.package.plan import (
    Installed,
    direct_requirements,
    is_packed,
    needed,
    parse_requirements,
    pip_arguments,
    submit_line,
)
from varvite.storage.errors import InvalidRequestError

ENVIRONMENT = {"python_version": "3.12", "sys_platform": "linux", "platform_system": "Linux"}
DISTRIBUTIONS = {
    d.name: d
    for d in (
        Installed("varvite", "1.0", ("pyspark>=4.1", "rocks_dict>=0.3", "s3fs>=1; extra == 's3'", "x; extra == 'web'")),
        Installed("rocks-dict", "0.3.29"),
        Installed("s3fs", "2.0", ("aio[fast]>=3", "old; python_version < '3.12'", "win; sys_platform == 'win32'")),
        Installed("aio", "3.5", ("quick; extra == 'fast'", "slow; extra == 'slow'", "s3fs")),
        Installed("quick", "0.1", ("py4j",)),
        Installed("pyspark", "4.3.0", ("py4j",)),
        Installed("beta", "2.0rc1"),
    )
}  # fmt: skip


def names(*roots: str) -> list[str]:
    return [d.name for d in needed(parse_requirements(roots), DISTRIBUTIONS.get, ENVIRONMENT)]


def test_all_that_varvite_needs_is_packed_but_not_what_spark_brings() -> None:
    assert names("varvite") == ["rocks-dict", "varvite"]


def test_extras_and_markers_say_what_else_is_needed_and_circles_end() -> None:
    assert names("varvite[s3]") == ["aio", "quick", "rocks-dict", "s3fs", "varvite"]
    assert names("aio") == ["aio", "quick", "s3fs"], "s3fs wants aio's extra"


def test_a_package_that_is_missing_or_too_old_is_named_with_who_needs_it() -> None:
    with pytest.raises(InvalidRequestError, match=r"x is not installed here, and varvite needs it"):
        names("varvite[web]")
    with pytest.raises(InvalidRequestError, match=r"varvite needs aio>=9, but 3.5 is installed"):
        names("aio>=9")
    assert names("beta>=2.0rc1") == ["beta"]


def test_what_is_no_name_of_a_package_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not the name of a package"):
        parse_requirements(["no such thing"])


@pytest.mark.parametrize(
    ("path", "packed"),
    [
        ("pyarrow/lib.cpython-311-x86_64-linux-gnu.so", True),
        ("numpy.libs/libopenblas.so", True),
        ("rich-15.0.0.dist-info/METADATA", True),
        ("pyarrow/include/arrow/api.h", False),
        ("pyarrow/tests/test_array.py", False),
        ("numpy/testing/__init__.py", True),
        ("rich/__pycache__/color.cpython-311.pyc", False),
        ("../../../bin/f2py", False),
        ("/etc/passwd", False),
        ("pyarrow/lib.pyx", False),
    ],
)
def test_scripts_caches_and_headers_stay_behind(path: str, packed: bool) -> None:
    assert is_packed(PurePosixPath(path)) is packed


def test_pip_is_asked_for_what_varvite_asks_for_but_spark() -> None:
    varvite = DISTRIBUTIONS["varvite"]
    assert direct_requirements(varvite, frozenset(), ENVIRONMENT) == ["rocks_dict>=0.3"]
    assert direct_requirements(varvite, frozenset({"s3"}), ENVIRONMENT) == ["rocks_dict>=0.3", "s3fs>=1"]


def test_pip_gets_wheels_for_another_platform_and_python() -> None:
    arguments = pip_arguments(["rocks_dict>=0.3"], "there", "pins.txt", ["manylinux_2_28_aarch64"], "3.12")
    text = shlex.join(arguments)
    assert text.startswith("install ")
    for part in (
        "--only-binary=:all:",
        "--target there",
        "--constraint pins.txt",
        "--platform manylinux_2_28_aarch64",
        "--implementation cp --python-version 3.12",
    ):
        assert part in text
    assert arguments[-1] == "rocks_dict>=0.3"
    assert "--python-version" not in pip_arguments(["a"], "there", "pins.txt", ["any"], None)


def test_the_line_to_submit_with_can_be_typed() -> None:
    line = submit_line("a dir/varvite.zip", "a dir/env.tar.gz")
    assert shlex.split(line) == [
        "spark-submit",
        "--py-files",
        "a dir/varvite.zip",
        "--archives",
        "a dir/env.tar.gz#varvite-environment",
        "--conf",
        "spark.executorEnv.PYTHONPATH=varvite-environment",
        "job.py",
    ]


def test_a_root_may_be_asked_for_twice() -> None:
    roots = (Requirement("varvite"), Requirement("varvite[s3]"))
    found = needed(roots, DISTRIBUTIONS.get, ENVIRONMENT)
    assert [d.name for d in found] == ["aio", "quick", "rocks-dict", "s3fs", "varvite"]
