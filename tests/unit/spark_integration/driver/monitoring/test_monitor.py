"""The driver's pages: one server for all queries of a process, from the first to the last."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.stores.manual_clock import ManualClock
from tests.workers.checkpoint_figures import checkpoint
from varvite.spark_integration.driver.monitoring.monitor import BATCH_MAX_S, JobMonitor, MonitoringSites
from varvite.storage.errors import FencedError, InvalidRequestError

LOCAL = "127.0.0.1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sites(clock: ManualClock) -> MonitoringSites:
    return MonitoringSites(clock)


def monitor(sites: MonitoringSites, job: str = "flights", ports: range = range(1)) -> JobMonitor:
    made = JobMonitor(job, LOCAL, ports, sites)
    made.started(3)
    return made


def get(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{LOCAL}:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_queries_share_a_port_until_the_last_one_ends(sites: MonitoringSites) -> None:
    first, second = monitor(sites), monitor(sites, "ships")
    port = first.port
    assert port == second.port
    first.acknowledged(checkpoint())
    second.acknowledged(checkpoint())
    text = get(port, "/metrics")[1]
    assert 'varvite_checkpoints_total{job="flights"} 1.0' in text
    assert 'varvite_checkpoint_seq{job="ships"} 9.0' in text
    first.close()
    first.close()
    text = get(port, "/metrics")[1]
    assert 'varvite_checkpoint_seq{job="flights"}' not in text
    second.close()
    with pytest.raises(urllib.error.URLError):
        get(port, "/metrics")
    assert second.port is None


def test_without_a_port_nothing_is_served_and_nothing_fails(sites: MonitoringSites) -> None:
    silent = JobMonitor("flights", "", None, sites)
    silent.started(1)
    with silent.batch():
        silent.acknowledged(checkpoint())
    silent.trouble("x")
    silent.materializer_started()
    silent.close()
    assert silent.port is None


def test_of_a_range_the_first_free_port_is_taken(sites: MonitoringSites) -> None:
    first = monitor(sites)
    assert first.port is not None
    taken = range(first.port, first.port + 1)
    with pytest.raises(InvalidRequestError, match=r"metrics\.reporter\.prom\.port"):
        monitor(sites, ports=taken)
    others = range(first.port, min(first.port + 50, 65_536))
    second = monitor(sites, ports=others)
    assert second.port in others[1:]
    first.close()
    second.close()


def test_readiness_says_what_is_wrong(sites: MonitoringSites, clock: ManualClock) -> None:
    one = monitor(sites)
    assert get(one.port, "/readyz") == (200, '{"ok":true,"reasons":[]}\n')
    one.trouble("the materializer was killed")
    with one.batch():
        clock.advance(BATCH_MAX_S + 1)
        code, text = get(one.port, "/readyz")
        assert get(one.port, "/healthz")[0] == 200
    assert code == 503
    assert json.loads(text)["reasons"] == [
        "flights: the batch has been executed for 601 s",
        "flights: the materializer was killed",
    ]
    one.trouble("")
    assert get(one.port, "/readyz")[0] == 200
    one.close()


def test_what_ended_a_query_is_counted_by_its_class(sites: MonitoringSites) -> None:
    one = monitor(sites)
    with pytest.raises(FencedError), one.batch():
        raise FencedError("another run has the chain")
    with pytest.raises(RuntimeError), one.batch():
        raise RuntimeError("Spark") from KeyError("the sink's")
    text = get(one.port, "/metrics")[1]
    assert 'varvite_failed_batches_total{error="FencedError",job="flights"} 1.0' in text
    assert 'varvite_failed_batches_total{error="KeyError",job="flights"} 1.0' in text
    one.close()
