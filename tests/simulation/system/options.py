"""Options of a simulation, drawn from its seed: who works, how, and what goes wrong how often."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from tests.simulation.system.function import FOLLOWER, KEY_GROUPS, OPERATOR, RULES, Changer, RuledChanger
from tests.simulation.system.store import NO_FAULTS, StoreFaults
from varvite.changelog.commit.state import CommitPolicy
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.harness.plan import HarnessSettings, harness_plan, harness_program
from varvite.spark_integration.options.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from varvite.spark_integration.plan.graph import plan_graph
from varvite.spark_integration.plan.job import JobPlan
from varvite.spark_integration.plan.operator import OperatorPlan, elements_of
from varvite.spark_integration.plan.transformations import DataFrameSource

SCHEMA: Final = "k string, n bigint"
STEPS: Final = 400
"""Of a short simulation."""
REAL_ROCKSDB: Final = 0.02
"""Share of the seeds that use RocksDB itself."""

MANY_QUIET_BATCHES: Final = 0.05
"""Share of the seeds that go on without faults for long; each takes twice as many steps."""


@dataclass(frozen=True)
class Options:
    """As the module's text says."""

    steps: int
    step_s: float
    burst: float
    faults: StoreFaults
    stalls: float
    """Probability that a process stalls, per step; ten times as likely before it claims a name."""
    stall_max_s: float
    crashes: float
    """Probability that a process is killed, per step."""
    keeps_disk: float
    """Probability that a killed process begins again with its local directory."""
    skew_max_s: float
    parallelism: int
    rescales: bool
    """Every run of the driver chooses its parallelism."""
    backend: str
    real_rocksdb: bool
    """RocksDB is the real one: four times as slow, and not the same run again."""
    changelog: bool
    drivers: int
    """Runs at the same time, at most."""
    takeovers: float
    """Probability that another one is started while one works, per look of the supervisor."""
    executors: int
    materializers: int
    collectors: int
    readers: int
    rerun: float
    """Probability that a partition is executed a second time, silently."""
    moves: float
    """Probability that a task goes to another executor than usual."""
    sink_tells: bool
    policy: CommitPolicy
    inline_bytes_max: int
    part_bytes: int
    grace_s: float
    forges: bool
    """Spark's checkpoint location is lost, set back or ahead, now and then (I11)."""
    chained: bool
    """The job has a second operator, which reads what the first one yields."""
    restores: float
    """Probability that an operator stops the job and sets it back, per look of the supervisor."""
    clones: float
    """Probability that somebody starts a clone of the job, per look; there is one at most."""
    ruled: bool
    """The first operator reads a broadcast stream, too."""
    disorder: float
    """Probability that a partition reads other broadcast rows than the others, or in another order."""
    hang: float
    """Probability that a write hangs, see `StoreFaults`."""
    hedged: bool
    """Claims of commits that have no answer are joined by a second request."""
    encrypted: bool
    """The job is; its clone may be stored otherwise."""
    log_elsewhere: bool
    """The job's log data is in a storage of its own."""
    log_faults: StoreFaults
    """Of that storage."""
    local_copies: bool
    """Local recovery is on."""
    hosts: int
    """Of the executors."""
    standbys: int
    """On as many hosts, with local recovery."""
    quiet_batches: int
    """Batches of the end without faults. Only when there are many the log becomes short by the materializer alone."""
    in_chain: bool = False
    """Progress is in the chain alone, and Spark's checkpoint location is a cache."""
    private_location: bool = False
    """Of a run, with `in_chain`: the job names none."""


def options_of(seed: int, steps: int = STEPS) -> Options:
    """The options of a seed."""
    rng = random.Random(f"options {seed}")
    rate = rng.choice([0.0, 0.003, 0.01, 0.03])
    step_s = rng.choice([0.02, 0.1, 0.3])
    faults = StoreFaults(
        before=rate,
        lost=rate,
        torn=rate / 2,
        late=rate / 2,
        late_max_s=step_s * rng.choice([20, 300]),
        slow=rng.choice([0.0, 0.02]),
        slow_max_s=step_s * rng.choice([10, 100]),
        pages=rng.choice([0.0, 0.2]),
        flips=rng.choice([0.0, 0.0, 0.0, 0.003]),
    )
    full_every = rng.randint(1, 6)
    return Options(
        steps=steps,
        step_s=step_s,
        burst=rng.choice([1.0, 2.0, 5.0]),
        faults=faults,
        stalls=rng.choice([0.0, 0.001, 0.004]),
        stall_max_s=step_s * rng.choice([30, 150, 500]),
        crashes=rng.choice([0.0, 0.001, 0.003]),
        keeps_disk=rng.choice([0.0, 0.5, 1.0]),
        skew_max_s=rng.choice([0.0, 5.0, 4000.0]),
        parallelism=rng.randint(1, 3),
        rescales=rng.random() < 0.3,
        backend=rng.choice(["hashmap", "rocksdb"]),
        real_rocksdb=rng.random() < REAL_ROCKSDB,
        changelog=rng.random() < 0.85,
        drivers=rng.randint(1, 3),
        takeovers=rng.choice([0.01, 0.1]),
        executors=rng.randint(1, 2),
        materializers=rng.choice([0, 1, 1, 2]),
        collectors=rng.choice([0, 1, 2]),
        readers=rng.choice([0, 0, 1]),
        rerun=rng.choice([0.0, 0.05, 0.2]),
        moves=rng.choice([0.0, 0.05, 0.3]),
        sink_tells=rng.random() < 0.5,
        policy=CommitPolicy(retained=rng.randint(2, 3), full_every=full_every, path_max=full_every + rng.randint(0, 4)),
        inline_bytes_max=rng.choice([1 << 20, 600, 0]),
        part_bytes=rng.choice([1 << 20, 1 << 20, 64]),
        grace_s=rng.choice([3.0, 60.0]),
        forges=rng.random() < 0.2,
        chained=rng.random() < 0.3,
        restores=rng.choice([0.0, 0.0, 0.02, 0.1]),
        clones=rng.choice([0.0, 0.0, 0.0, 0.2]),
        ruled=rng.random() < 0.3,
        disorder=rng.choice([0.0, 0.05]),
        **_places(rng, faults),
    )


def in_chain(options: Options, seed: int) -> Options:
    """The options for a job whose progress is in the chain alone."""
    chance = random.Random(f"in chain {seed}")
    return replace(options, in_chain=True, private_location=chance.random() < 0.4)


def _places(rng: random.Random, faults: StoreFaults) -> dict[str, Any]:
    """Storage of the state, drawn after all else."""
    rng.choice([0, 1, 2])  # for an option that has gone: the seeds draw the rest as they did
    return {
        "hang": rng.choice([0.0, 0.0, 0.005, 0.02]),
        "hedged": rng.random() < 0.5,
        "encrypted": rng.random() < 0.2,
        "log_elsewhere": rng.random() < 0.25,
        "log_faults": rng.choice([NO_FAULTS, faults, replace(faults, before=0.05, lost=0.05)]),
        "local_copies": rng.random() < 0.3,
        "hosts": rng.randint(1, 2),
        "standbys": rng.randint(0, 1),
        "quiet_batches": 20 if rng.random() < MANY_QUIET_BATCHES else 3,
    }


@lru_cache(maxsize=32)
def job_plan(parallelism: int, backend: str, *, changelog: bool, chained: bool, ruled: bool) -> JobPlan:
    """The job, as its driver plans it."""
    settings = HarnessSettings(
        parallelism=parallelism,
        max_parallelism=KEY_GROUPS,
        backend=HashMapStateBackend() if backend == "hashmap" else EmbeddedRocksDBStateBackend(),
        changelog=changelog,
    )
    # The harness plans one operator at a time.
    plans = [_plan_of(uid, settings) for uid in (OPERATOR, FOLLOWER)[: 2 if chained else 1]]
    operators = [replace(plan.operators[0], timestamp_column=None) for plan in plans]
    if ruled:
        operators[0] = _ruled_operator(OPERATOR)
    config: Any = replace(plans[0].config, materializer_mode="off")
    return replace(
        plans[0], job="job", preparation=None, operators=tuple(operators), config=config, checkpoint_location="none"
    )


def _plan_of(uid: str, settings: HarnessSettings) -> JobPlan:
    program = harness_program(lambda stream: stream.key_by("k").process(Changer(), SCHEMA, uid=uid), (SCHEMA,))
    return harness_plan(program, settings).job


def _ruled_operator(uid: str) -> OperatorPlan:
    """An operator that the harness does not plan."""
    without_spark: Any = None
    environment = StreamExecutionEnvironment(without_spark).configure("execution.checkpointing.dir", "memory://job")
    rows, rules = (
        DataStream(environment, DataFrameSource(elements=elements_of(schema), dataframe=without_spark, event_time=None))
        for schema in (SCHEMA, "n bigint")
    )
    made = rows.key_by("k").connect(rules.broadcast(RULES)).process(RuledChanger(), SCHEMA, uid=uid)
    return plan_graph(made.transformation, environment.graph_settings, []).operators[0]
