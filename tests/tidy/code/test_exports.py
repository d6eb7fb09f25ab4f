"""Every module imports, and every name that a package exports exists."""

from __future__ import annotations

import importlib
from typing import TypeVar

import pytest

from tests.tidy.project_files import ROOT

PACKAGES = ("varvite", "varvite.storage", "varvite.changelog", "varvite.materializer", "varvite.spark_integration")
EXPORTS = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for package in ("common", "datastream", "extending", "java_gateway", "metrics", "testing", "util")
    for path in (ROOT / "src" / "varvite" / package).rglob("*.py")
)
"""Modules that stand where users look: PyFlink's names, and what is for extensions and tests."""


def module_names() -> list[str]:
    """Every module of varvite by its full name; `__main__` modules would run."""
    files = [path for package in PACKAGES[1:] for path in (ROOT / package.removeprefix("varvite.")).rglob("*.py")]
    modules = [path for path in files if path.stem not in ("__init__", "__main__")]
    return sorted(".".join(("varvite", *path.relative_to(ROOT).with_suffix("").parts)) for path in modules)


@pytest.mark.parametrize("name", module_names())
def test_a_module_imports_and_says_what_it_is_for(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("name", [*PACKAGES, *EXPORTS])
def test_exported_names_exist(name: str) -> None:
    package = importlib.import_module(name)
    exported = list(getattr(package, "__all__", []))
    assert len(exported) == len(set(exported)), "a name is listed twice"
    for public in exported:
        assert getattr(package, public) is not None


def test_the_library_exports_its_version() -> None:
    varvite = importlib.import_module("varvite")
    assert f'version = "{varvite.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_what_a_program_needs_is_exported_from_the_top_package() -> None:
    """Names were spread: OutputTag, windows, Duration and plain functions were elsewhere, without a hint."""
    varvite = importlib.import_module("varvite")
    doors = ("common", "datastream", "datastream.window", "datastream.state", "datastream.functions")
    behind = {name for door in doors for name in importlib.import_module(f"varvite.{door}").__all__}
    made_by_calls = {
        "AllWindowedStream", "BaseBroadcastProcessFunction", "BroadcastConnectedStream", "BroadcastStream",
        "ConnectedStreams", "DataStreamSink", "Function", "MetricGroup", "State", "StateDescriptor", "WindowedStream",
    }  # fmt: skip
    used = {name for name in behind if name in varvite.__all__ or is_made_for_programs(name)}
    assert used - set(varvite.__all__) <= made_by_calls


OF_PYFLINK_ALONE = {
    "AvroRowDeserializationSchema", "AvroRowSerializationSchema", "ByteArraySchema", "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema", "DeserializationSchema", "Encoder", "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema", "SerializationSchema", "SimpleStringSchema",
    "ExternalizedCheckpointCleanup",
    "BasicArrayTypeInfo", "BasicType", "BasicTypeInfo", "CachedDataStream", "CompletableFuture", "ConfigOption",
    "ConfigOptions", "CustomCheckpointStorage", "DEFAULT_OUTPUT_TAG", "DeliveryGuarantee", "ExecutionConfig",
    "ExecutionMode", "InputDependencyConstraint", "Instant", "JobClient", "JobID", "JobStatus", "MAX_LONG_VALUE",
    "MIN_LONG_VALUE", "MemorySize", "Partitioner", "RestartStrategies", "RestartStrategyConfiguration",
    "RowKind", "SlotSharingGroup", "TimeCharacteristic",
}  # fmt: skip
"""Names that only programs written for PyFlink have, and look for in its modules."""


def is_made_for_programs(name: str) -> bool:
    """True for what one who writes a program for varvite would look for in the top package."""
    for door in ("common", "datastream", "datastream.window", "datastream.state", "datastream.functions"):
        value = getattr(importlib.import_module(f"varvite.{door}"), name, None)
        if value is not None:
            of_types = isinstance(value, TypeVar) or type(value).__name__ == "_Absent"
            return not of_types and name not in OF_PYFLINK_ALONE
    return False


def test_a_wrong_name_gives_a_hint() -> None:
    varvite = importlib.import_module("varvite")
    for wrong, hint in (
        ("OutputTags", "'OutputTag'"),
        ("ValueStateDescripter", "'ValueStateDescriptor'"),
        ("Q", "list"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(varvite, wrong)
    assert not hasattr(varvite, "__wrapped__")
