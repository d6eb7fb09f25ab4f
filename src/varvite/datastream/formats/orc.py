"""`pyflink.datastream.formats.orc`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.common.serialization import BulkWriterFactory, RowDataBulkWriterFactory
from varvite.spark_integration.options.absent import NO_SCHEMAS, absent
from varvite.spark_integration.options.configuration import Configuration

__all__ = ["BulkWriterFactory", "Configuration", "OrcBulkWriters", "RowDataBulkWriterFactory"]

OrcBulkWriters: Any = absent("OrcBulkWriters", NO_SCHEMAS)
