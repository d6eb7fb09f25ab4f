"""The functions of docs/operate/schema-evolution.md, one deployed after the other over the same state."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.jobs.materializer_world import Events
from tests.spark.job.test_job import kill_state_workers
from tests.spark.keyed_jobs import BACKENDS, KeyedJob
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.materializer.monitoring.events import Materialized
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.service.loop import run_materializer
from varvite.storage.errors import IncompatibleError

pytestmark = [pytest.mark.spark, pytest.mark.fixed_storage]  # it materializes at chosen places
PAGE = "docs/operate/schema-evolution.md"


def documented_functions() -> dict[str, Any]:
    """The page's classes. As if a user's main script had them: they travel to the workers by value."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(PAGE, (ROOT / PAGE).read_text()):
        if "run" in block.tags:
            exec(block.text, namespace)
    return namespace


def materialize(job: KeyedJob) -> int:
    """Run a sidecar until there is nothing more to do; answers how many snapshots it published."""
    events = Events()
    config = MaterializerConfig(
        storage_url=f"file://{job.directory / 'state'}", job=job.name, working_directory=job.directory / "sidecar"
    )
    assert run_materializer(config, events, StopSignal(), once=True)
    return len(events.of(Materialized))


def adopt(job: KeyedJob) -> None:
    """Add batches until the job has adopted the sidecar's snapshots, so that a restart begins from them."""
    stream = job.environment().from_dataframe(job.stream.read())
    writer = stream.key_by("k").process(job.function, job.output, uid="sums").foreach_batch(job.collect)
    query = writer.query_name(job.name).option("checkpointLocation", str(job.directory / job.checkpoint)).start()
    try:
        deadline_s = time.monotonic() + 120
        while True:
            job.add(("filler", 1))
            query.processAllAvailable()
            commits = [done.log_commits for done in query.checkpoint_statistics.history()]
            if any(later < earlier for earlier, later in pairwise(commits)):
                return
            assert time.monotonic() < deadline_s, "no snapshot was adopted"
            time.sleep(0.2)
    finally:
        query.stop()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.rare)])
def test_a_job_goes_on_with_other_types(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    functions = documented_functions()
    job = KeyedJob(spark, tmp_path, backend=BACKENDS[backend], output="k string, state string")

    def deployed(name: str, *rows: tuple[str, int]) -> dict[str, str]:
        """Lose the workers, start the query with this function on these rows, and give what it yields."""
        kill_state_workers(spark)
        job.received.clear()
        job.function = functions[name]()
        job.add(*rows)
        job.run()
        return dict(row for _, batch in job.received for row in batch)

    everyone = [("a", 1), ("b", 10), ("c", 100), ("d", 1000)]
    assert deployed("Orders", *everyone)["d"] == "(1, 1000, 1000)"
    descriptor = functions["ValueStateDescriptor"]
    functions["Broken"] = broken(functions["Orders"], descriptor)
    with pytest.raises(IncompatibleError, match=r"'orders' is stored as value of 1:row<n:int.*migrate=") as caught:
        deployed("Broken", ("a", 2))
    assert caught.value.context["operator"] == "sums"
    assert deployed("Orders") == {"a": "(2, 3, 2)"}, "the rows that the wrong code did not get"
    assert deployed("OrdersByCurrency", ("a", 2**40), ("e", 5)) == {
        "a": f"({2**40 + 3}, 3, 'CHF')",
        "e": "(5, 1, 'EUR')",
    }
    assert materialize(job) == 2, "of both partitions; the log had segments of both versions"
    adopt(job)
    assert deployed("OrdersByCurrency", ("b", 1)) == {"b": "(11, 2, 'CHF')"}, "an old value out of a snapshot"
    assert deployed("Averages", ("c", 200), ("f", 1)) == {"c": "(2, 150.0)", "f": "(1, 1.0)"}
    assert deployed("Averages", ("d", 0), ("c", 0)) == {"d": "(2, 500.0)", "c": "(3, 100.0)"}


def broken(base: Any, descriptor: Any) -> Any:
    """A function with an incompatible type; made here of the page's class, so that it travels by value too."""
    namespace: dict[str, Any] = {"__name__": "__main__", "Orders": base, "ValueStateDescriptor": descriptor}
    exec(
        "class Broken(Orders):\n"
        "    def open(self, runtime_context):\n"
        "        self.orders = runtime_context.get_state(ValueStateDescriptor('orders', 'n string, total int'))\n",
        namespace,
    )
    return namespace["Broken"]
