"""A Hadoop filesystem of counted, delayed requests, for what Spark itself keeps: its checkpoints.

PySpark has no S3 filesystem (`hadoop-aws` and its SDK are half a gigabyte of their own). So Spark's checkpoint is in
local files behind `ObjectFileSystem.java`, which counts and delays operations as the requests of an object store, and
where it is in doubt counts in favour of Spark. With an endpoint, what the files hold is in a bucket there, and every
byte that Spark writes or reads of them passes over HTTP. It is compiled with the Java compiler that Spark brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.session import session

SOURCE = Path(__file__).parent / "ObjectFileSystem.java"
CLASS = "varvite.benchmarks.ObjectFileSystem"
SCHEME = "objects"
FILES = ("logs", "changelog", "snapshot", "state")
"""Offsets, commits and the like; changelogs of state; the archives that are snapshots; other files of state."""
KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE", "RENAME")


def session_with_objects(
    directory: Path, latency_ms: float = 0.0, more: Mapping[str, str] | None = None, endpoint: str = ""
) -> Any:
    """A session that knows `objects://` locations.

    Args:
        directory: For the filesystem's classes.
        latency_ms: Added to every request.
        more: Further properties.
        endpoint: URL of a bucket, or of a prefix in one, that anybody may read and write; files' contents are in it.
            Then PUT and GET take what it takes, and the latency is that of the others.
    """
    directory.mkdir(parents=True, exist_ok=True)  # before the JVM, which forgets what is not there when it starts
    own = {
        "spark.driver.extraClassPath": str(directory),
        f"spark.hadoop.fs.{SCHEME}.impl": CLASS,
        f"spark.hadoop.fs.{SCHEME}.latency.ms": str(round(latency_ms)),
        f"spark.hadoop.fs.{SCHEME}.endpoint": endpoint,
    }
    spark = session(own | dict(more or {}))
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # noqa: SLF001  no public way
    compiler.cook(SOURCE.read_text())
    for name, code in dict(compiler.getBytecodes()).items():
        target = directory / f"{name.replace('.', '/')}.class"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(code))
    return spark


@dataclass(frozen=True)
class ObjectCounts:
    """Requests so far: (in Spark's maintenance, kind, file) → number.

    A file is one of `FILES`.
    """

    requests: Counter[tuple[bool, str, str]]
    sizes_bytes: Counter[tuple[bool, str, str]]

    @classmethod
    def of(cls, spark: Any) -> ObjectCounts:
        """Of the session's JVM."""
        return cls.parse(spark._jvm.varvite.benchmarks.ObjectFileSystem.counts())  # noqa: SLF001  no public way

    @classmethod
    def parse(cls, text: str) -> ObjectCounts:
        """Of the lines that the filesystem gives."""
        counts = cls(Counter(), Counter())
        for line in text.splitlines():
            thread, kind, path, what, number = line.split()
            target = counts.requests if what == "requests" else counts.sizes_bytes
            target[thread == "background", kind, path] += int(number)
        return counts

    def __sub__(self, earlier: ObjectCounts) -> ObjectCounts:
        """Requests since then."""
        return ObjectCounts(self.requests - earlier.requests, self.sizes_bytes - earlier.sizes_bytes)

    def by_kind(self, files: Collection[str] = FILES, *, background: bool) -> Counter[str]:
        """Requests of each kind, to these files."""
        found: Counter[str] = Counter()
        for (in_background, kind, file), number in self.requests.items():
            if in_background == background and file in files:
                found[kind] += number
        return found

    def put_bytes(self, files: Collection[str] = FILES, *, background: bool) -> int:
        """Bytes that were written to these files."""
        return sum(
            number
            for (in_background, kind, file), number in self.sizes_bytes.items()
            if in_background == background and kind == "PUT" and file in files
        )
