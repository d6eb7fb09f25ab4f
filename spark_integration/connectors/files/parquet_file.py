"""Encodes a small table as a Parquet file that Spark reads as one of its own, without a Spark job.

Only where nothing asks for more: no option of the writer but the compression, no setting of Spark's or Parquet's that
changes files, and types that both write alike. Timestamps are microseconds in UTC, which Spark reads like its INT96.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as spark

from varvite.spark_integration.connectors.output.table import plain, spark_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

FILE_MAX_BYTES: Final = 4 << 20
"""Larger files are written by Spark: they would pass through the JVM's connection."""
_SUFFIXES: Final = {"snappy": ".snappy", "zstd": ".zstd", "gzip": ".gz", "none": "", "uncompressed": ""}
"""Spark's name of a codec → what it puts into names of files."""
_CODECS: Final = {"none": "none", "uncompressed": "none"}
"""Those that Arrow calls otherwise."""
_CODEC: Final = "spark.sql.parquet.compression.codec"
_AS_DEFAULT: Final = {
    "spark.sql.parquet.writeLegacyFormat": ("false",),
    "spark.sql.parquet.outputTimestampType": ("INT96", "TIMESTAMP_MICROS"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED",),
    "spark.sql.files.maxRecordsPerFile": ("0",),
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    ),
    "spark.sql.parquet.output.committer.class": ("org.apache.parquet.hadoop.ParquetOutputCommitter",),
}
"""Settings of Spark that change files, and the values for which Arrow's are the same."""
_ATOMIC: Final = (
    spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.FloatType,
    spark.DoubleType, spark.DecimalType, spark.BinaryType, spark.DateType, spark.TimestampType, spark.TimestampNTZType,
)  # fmt: skip


class EncodedFile(NamedTuple):
    """A file to write."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ParquetEncoder:
    """Encodes tables; one that cannot answers None for each."""

    codec: str | None
    """Spark's name of the compression; None: only Spark can write."""
    version: str = ""
    """Spark's, by which it reads old dates."""

    @classmethod
    def create(cls, session: SparkSession, file_format: str, options: Mapping[str, Any]) -> ParquetEncoder:
        """The encoder for files that Spark would write with these options of its writer."""
        left = {name.lower(): value for name, value in options.items()}
        codec = str(left.pop("compression", None) or session.conf.get(_CODEC)).lower()
        is_plain = all(session.conf.get(key) in values for key, values in _AS_DEFAULT.items())
        if file_format != "parquet" or left or codec not in _SUFFIXES or not is_plain or _has_hadoop(session):
            return cls(None)
        return cls(codec, session.version)

    def encode(self, table: pa.Table) -> bytes | None:
        """The table as the bytes of a file; None if Spark has to write it."""
        schema = spark_schema(table)
        if self.codec is None or not all(_is_alike(field.dataType) for field in schema.fields):
            return None
        metadata = {
            "org.apache.spark.version": self.version,
            "org.apache.spark.sql.parquet.row.metadata": schema.json(),
        }
        sink = pa.BufferOutputStream()
        compression: Any = _CODECS.get(self.codec, self.codec)
        pq.write_table(
            plain(table).replace_schema_metadata(metadata), sink, compression=compression, store_schema=False
        )
        data = sink.getvalue()
        return data.to_pybytes() if data.size <= FILE_MAX_BYTES else None

    def name(self, token: str) -> str:
        """A name as Spark gives it to the only file of a job, for the commit with that token."""
        return f"part-00000-{uuid.UUID(hex=token or '0' * 32)}-c000{_SUFFIXES[self.codec or 'none']}.parquet"


def _is_alike(kind: spark.DataType) -> bool:
    """Does Spark read a value of that type in Arrow's file as in its own?"""
    if isinstance(kind, spark.StructType):
        return bool(kind.fields) and all(_is_alike(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return _is_alike(kind.elementType)
    if isinstance(kind, spark.MapType):
        return _is_alike(kind.keyType) and _is_alike(kind.valueType)
    return kind == spark.StringType() or type(kind) in _ATOMIC


def _has_hadoop(session: SparkSession) -> bool:
    """Is Parquet itself configured: block size, Bloom filters, encryption?"""
    inner: Any = session._jsparkSession  # noqa: SLF001  there is no public way to the Hadoop configuration
    return not inner.sessionState().newHadoopConf().getValByRegex("^parquet\\.").isEmpty()
