"""A sink that writes rows to Kafka: by default one transaction per batch, in which the batch's commit is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.kafka.columns import (
    HEADERS,
    PARTITION,
    TIME,
    check_columns,
    columns_of,
    messages_of,
    topics_of,
)
from varvite.spark_integration.connectors.kafka.producer import KafkaProducer
from varvite.spark_integration.connectors.kafka.settings import (
    COMMIT_TOPIC,
    TRANSACTIONAL_ID_PREFIX,
    Delivery,
    settings,
)
from varvite.spark_integration.connectors.output.rows import FrameRows, TableRows
from varvite.spark_integration.connectors.output.table import spark_schema
from varvite.spark_integration.connectors.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.spark_integration.connectors.output.rows import OutputRows


class KafkaSink(Sink):
    """Writes rows to Kafka. Their columns are those of Spark's Kafka sink: value, key, topic, headers, partition.

    Exactly once for who reads committed messages (`isolation.level=read_committed`). All such sinks of a job that have
    the same servers and options write in one transaction.

    Args:
        servers: Addresses of the brokers.
        topic: The topic of all rows; without it the column `topic` says it.
        delivery: "exactly-once", or "at-least-once": without transactions, so a few milliseconds faster.
        options: Options of librdkafka.
        commit_topic: The topic that notes the last commit of each job; it is created.
        transactional_id_prefix: Beginning of the transactional id, which ends with the job's id.
        allow_repeats: Batches that are executed again after `varvite restore` are appended once more, not refused.

    Raises:
        InvalidRequestError: A setting that does not fit.
    """

    brings_rows_to_driver = True

    def __init__(
        self,
        servers: str,
        topic: str | None = None,
        *,
        delivery: str = Delivery.EXACTLY_ONCE.value,
        options: Mapping[str, Any] | None = None,
        commit_topic: str = COMMIT_TOPIC,
        transactional_id_prefix: str = TRANSACTIONAL_ID_PREFIX,
        allow_repeats: bool = False,
    ) -> None:
        self.settings = settings(
            servers,
            topic,
            options or {},
            delivery=delivery,
            commit_topic=commit_topic,
            transactional_id_prefix=transactional_id_prefix,
            allow_repeats=allow_repeats,
        )
        self._own = KafkaProducer(self.settings)
        self.producer = self._own
        """Another sink's, if both write in one transaction."""

    @property
    def repeated_batch(self) -> RepeatedBatch:
        return RepeatedBatch.REFUSED if self.producer.is_transactional else RepeatedBatch.DOUBLED

    def check_columns(self, schema: StructType) -> None:
        check_columns(schema, self.settings.topic)

    def share_transaction(self, other: Sink) -> bool:
        if not isinstance(other, KafkaSink) or not self.settings.shares_transaction(other.settings):
            return False
        self.producer = other.producer
        return True

    def prepare(self, job_id: str) -> None:
        if self.producer is self._own:
            self.producer.prepare(job_id)

    def take_over(self) -> None:
        self.producer.take_over()

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        """Produce the rows, which come to the driver in pieces."""
        check_columns(df.schema, self.settings.topic)
        self._write(commit, FrameRows(columns_of(df)))

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        check_columns(spark_schema(table), self.settings.topic)
        self._write(commit, TableRows(table))

    def complete(self, commit: SinkCommit) -> None:
        self.producer.complete(commit)

    def last_committed(self) -> SinkCommit | None:
        return self.producer.last_committed

    def close(self) -> None:
        self.producer.close()
        self.producer = self._own

    def _write(self, commit: SinkCommit, rows: OutputRows) -> None:
        if not self.producer.begin(commit):
            return
        try:
            for batch in rows.batches():
                self._produce(pa.Table.from_batches([batch]))
        except BaseException:
            self.producer.abort()
            raise

    def _produce(self, table: pa.Table) -> None:
        if TIME in table.column_names and table.column(TIME).null_count == table.num_rows:
            table = table.drop_columns([TIME])
        is_plain = not {HEADERS, PARTITION, TIME} & set(table.column_names)
        for topic, of_topic in topics_of(table, self.settings.topic):
            for messages, size_bytes in messages_of(of_topic):
                self.producer.produce(topic, messages, size_bytes, is_plain=is_plain)
