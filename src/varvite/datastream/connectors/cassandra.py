"""`pyflink.datastream.connectors.cassandra`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Duration
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = [
    "CassandraCommitter",
    "CassandraFailureHandler",
    "CassandraSink",
    "ClusterBuilder",
    "ConsistencyLevel",
    "Duration",
    "MapperOptions",
]

CassandraCommitter: Any = absent("CassandraCommitter", BOTH_WITH_SPARK)
CassandraFailureHandler: Any = absent("CassandraFailureHandler", BOTH_WITH_SPARK)
CassandraSink: Any = absent("CassandraSink", WRITE_WITH_SPARK)
ClusterBuilder: Any = absent("ClusterBuilder", BOTH_WITH_SPARK)
ConsistencyLevel: Any = absent("ConsistencyLevel", BOTH_WITH_SPARK)
MapperOptions: Any = absent("MapperOptions", BOTH_WITH_SPARK)
