"""The place of the demo's state: a directory, any URL, or a server that is started for the demo."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

LOCAL = "local"
SERVERS = ("s3", "gcs", "azure", "hdfs")
_FILE = "storage.json"


@dataclass(frozen=True)
class Storage:
    """A location, and the options that open it."""

    url: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def write(self, work: Path) -> None:
        """Leave it for the driver."""
        (work / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, work: Path) -> Storage:
        """The location that `write` has left."""
        return cls(**json.loads((work / _FILE).read_text()))

    def texts(self) -> dict[str, str]:
        """The options as configuration and command line take them."""
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.options.items()}


@contextmanager
def opened(name: str, work: Path) -> Generator[Storage]:
    """The storage of a name: `local`, a URL, or one of `SERVERS`, which runs meanwhile."""
    if name == LOCAL:
        yield Storage(str(work / "state"))
    elif "://" in name:
        yield Storage(name)
    elif name in SERVERS:
        kinds: Any = importlib.import_module("benchmarks.harness.servers.kinds")
        try:
            with kinds.running(name, work / "server") as server:
                yield Storage(server.new_location(), server.storage_options())
        except (RuntimeError, ImportError) as error:
            raise click.ClickException(str(error)) from error
    else:
        raise click.UsageError(f"--storage takes a URL, {LOCAL}, {', '.join(SERVERS)}, not {name!r}")
