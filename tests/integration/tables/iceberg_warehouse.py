"""A warehouse of Iceberg tables of a test, whose catalogue is in SQLite."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from tests.integration.tables.delta_table import struct
from varvite.spark_integration.connectors.tables.iceberg_sink import IcebergSink


def catalog_properties(home: Path) -> dict[str, str]:
    """Properties of the catalogue in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}


class Warehouse:
    """A catalogue, and the sinks of one job that write to its table `d.t`."""

    def __init__(self, home: Path, **properties: str) -> None:
        """Make it.

        Args:
            home: Its directory.
            properties: Those of the catalogue that are others.
        """
        (home / "warehouse").mkdir(parents=True, exist_ok=True)
        self.properties = {**catalog_properties(home), **properties}
        self.job = uuid.uuid4().hex
        self.catalog: Catalog = load_catalog("c", **self.properties)
        self.catalog.create_namespace_if_not_exists("d")
        self.sinks: list[IcebergSink] = []

    def sink(self, schema: str = "k string, v long", **settings: Any) -> IcebergSink:
        """A sink that is not prepared."""
        self.sinks.append(IcebergSink("d.t", catalog="c", properties=self.properties, **settings))
        self.sinks[-1].check_columns(struct(schema))
        return self.sinks[-1]

    def open(self, schema: str = "k string, v long", *, job: str | None = None, **settings: Any) -> IcebergSink:
        """A sink as a new driver makes it."""
        sink = self.sink(schema, **settings)
        sink.prepare(job or self.job)
        sink.take_over()
        return sink

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        names = columns or ("k", "v")
        table = self.catalog.load_table("d.t").scan(selected_fields=names).to_arrow().select(list(names))
        return sorted(zip(*table.to_pydict().values(), strict=True), key=repr)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        self.catalog.close()
