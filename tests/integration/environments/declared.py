"""The requirements of the project, as `pyproject.toml` declares them, and their lowest versions."""

from __future__ import annotations

import tomllib
from typing import Any

from packaging.requirements import Requirement

from tests.tidy.project_files import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES: list[str] = PROJECT["dependencies"]


def lowest(requirement: str) -> str:
    """The requirement with the lowest version that it allows; it must have one lower bound."""
    parsed = Requirement(requirement)
    (bound,) = [specifier.version for specifier in parsed.specifier if specifier.operator == ">="]
    return f"{parsed.name}=={bound}"


def of_tests(*names: str) -> list[str]:
    """The requirements of the extras `test` and `bench` for these distributions."""
    declared = {
        Requirement(text).name: text for name in ("test", "bench") for text in PROJECT["optional-dependencies"][name]
    }
    return [declared[name] for name in names]
