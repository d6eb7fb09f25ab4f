"""The protocols of remote storages in URLs; a module that costs nothing to import."""

from __future__ import annotations

from typing import Final

S3_PROTOCOLS: Final = ("s3", "s3a")
"""S3 and its clones."""
GCS_PROTOCOLS: Final = ("gs", "gcs")
"""Google Cloud Storage."""
AZURE_PROTOCOLS: Final = ("az", "abfs", "abfss")
"""Azure Blob Storage and ADLS Gen2."""
HDFS_PROTOCOLS: Final = ("hdfs",)
"""Hadoop's filesystem."""
PROTOCOLS: Final = (S3_PROTOCOLS, GCS_PROTOCOLS, AZURE_PROTOCOLS, HDFS_PROTOCOLS)
"""Those of each storage that has a dialect of its own."""
