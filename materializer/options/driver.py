"""Options that only the driver acts on.

They are declared here, below the driver, because a sidecar is often started with the job's own `spark-defaults`: it
ignores their values, and has to tell their keys from misspelt ones.
"""

from __future__ import annotations

from typing import Final

from varvite.storage.options.declaration import ConfigOption
from varvite.storage.options.kinds import BOOLEAN, DURATION, INTEGER, MEMORY_SIZE, PARAMETERS, PORTS, STRING, choice

KEY_GROUPS_MAX: Final = 32_768
"""Flink's upper bound of the number of key groups; two bytes hold a key group."""

CHECKPOINT_INTERVAL: Final = ConfigOption(
    key="execution.checkpointing.interval",
    type=DURATION,
    at_least=1,
    description="Time between the starts of two batches, each of which ends with a checkpoint. A trigger of the "
    "query's writer wins.",
    unset="as in Spark, a batch follows the one before at once",
)
PROGRESS: Final = ConfigOption(
    key="execution.checkpointing.progress",
    type=choice("auto", "chain", "spark"),
    default="auto",
    description="Place where each batch writes the position of its input. `chain`: in its checkpoint alone, from which "
    "each start makes Spark's checkpoint location. `spark`: in Spark's logs as well, which takes two more writes. "
    "`auto`: `chain` if the query's sources (rate and Kafka) and trigger (one that does not end) allow it. Set `chain` "
    "for other sources only if they keep nothing in the location but where they began.",
)
RUNTIME_MODE: Final = ConfigOption(
    key="execution.runtime-mode",
    type=choice("streaming", "batch", "automatic"),
    default="streaming",
    description="Results of a program that `execute` runs. `streaming`: one for each element. `batch`: of a keyed "
    "reduction only each key's last one, and no state is kept; every source has to end. `automatic`: `batch` if every "
    "source ends, else `streaming`. A query that `start()` starts has `streaming` only.",
)
MAX_PARALLELISM: Final = ConfigOption(
    key="pipeline.max-parallelism",
    type=INTEGER,
    default=128,
    at_least=1,
    at_most=KEY_GROUPS_MAX,
    description="Number of key groups: the upper bound of the parallelism. It can never change for a job.",
)
PARALLELISM: Final = ConfigOption(
    key="parallelism.default",
    type=INTEGER,
    at_least=1,
    at_most=KEY_GROUPS_MAX,
    description="Partitions of every operator, each with a task and a state worker of its own.",
    unset="`spark.sql.shuffle.partitions`, or in local mode without that one per core; at most "
    f"`{MAX_PARALLELISM.key}`",
)
HEARTBEAT_ENABLED: Final = ConfigOption(
    key="pipeline.heartbeat.enabled",
    type=BOOLEAN,
    description="Run a batch about every second, or at every trigger if that is rarer, while the input is quiet, so "
    "that timers fire. Holds for the life of a checkpoint location.",
    unset="on if a function of the job has `on_timer`",
)
JOB_PARAMETERS: Final = ConfigOption(
    key="pipeline.global-job-parameters",
    type=PARAMETERS,
    description="Parameters that functions read with `get_job_parameter`.",
)
MATERIALIZER_MODE: Final = ConfigOption(
    key="materializer.mode",
    type=choice("sidecar", "embedded", "off"),
    default="sidecar",
    description="Process that materializes: one that you start beside the job (`varvite materialize`), a child that "
    "the driver starts and ends with the query, or none.",
)
WORKER_IDLE_TIMEOUT: Final = ConfigOption(
    key="state.worker.idle-timeout",
    type=DURATION,
    default=30 * 60_000,
    at_least=1_000,
    description="End a state worker that has had no request for this long. Keep it well above the time between two "
    "batches: the next batch has to start the worker and restore its state.",
)
METRICS_PORT: Final = ConfigOption(
    key="metrics.reporter.prom.port",
    type=PORTS,
    description="Port on which the driver serves `/metrics`, `/healthz` and `/readyz`, for all queries of its process "
    "that name the same. 0: a free one. A range: the first that is free.",
    unset="nothing is served",
)
METRICS_HOST: Final = ConfigOption(
    key="metrics.reporter.prom.host",
    type=STRING,
    description="Address on which the driver serves metrics and health.",
    unset="all addresses of the machine",
)
PLACEMENT_ENABLED: Final = ConfigOption(
    key="state.worker.placement.enabled",
    type=BOOLEAN,
    default=True,
    description="With several executors, let the tasks of a partition ask for the executor that has its state. Off: "
    "Spark gives them to any executor, and a partition that comes to another one restores its state there.",
)
SMALL_BATCH_ROWS: Final = ConfigOption(
    key="execution.small-batch.max-rows",
    type=INTEGER,
    default=20_000,
    at_least=0,
    at_most=10_000_000,
    description="In local mode, a batch of at most so many rows is executed without a shuffle, a cache and a second "
    "Spark job: the driver reads the rows and gives them to the state workers itself. 0: none is.",
)
SMALL_BATCH_SIZE: Final = ConfigOption(
    key="execution.small-batch.max-size",
    type=MEMORY_SIZE,
    default=8 << 20,
    at_least=1 << 10,
    at_most=1 << 30,
    description=f"Largest size of such a batch's rows as Arrow (`{SMALL_BATCH_ROWS.key}`); what comes out of it may "
    "have eight times as much.",
)
