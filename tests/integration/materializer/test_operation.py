"""Operating the sidecar: its pages for monitoring, requests, and processes that are paused for long."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import PATIENCE_S, Sidecar, Site
from varvite.materializer.monitoring.events import Adopted, Materialized, Waiting
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.sidecar


def wait_for(condition: Callable[[], bool], site: Site) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, site.logs()
        time.sleep(0.05)


def port_of(sidecar: Sidecar, site: Site) -> int:
    """The free port that the sidecar took."""

    def served() -> list[str]:
        return [e.message for e in sidecar.events() if isinstance(e, Waiting) and "/metrics" in e.message]

    wait_for(lambda: bool(served()), site)
    return int(served()[0].rsplit(" ", 1)[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_monitoring_sees_what_the_sidecar_does(site: Site) -> None:
    site.job.start()
    sidecar = site.sidecar("--metrics-port", "0", "--metrics-host", "127.0.0.1")
    port = port_of(sidecar, site)
    site.commit_until(lambda: sidecar.count(Adopted) >= 2)
    wait_for(lambda: get(port, "/readyz")[0] == 200, site)
    assert get(port, "/healthz") == (200, '{"ok":true,"reasons":[]}\n')
    text = get(port, "/metrics")[1]
    assert 'varvite_adopted_snapshots_total{job="flights",key_groups="0-3",operator="flights"}' in text
    assert 'varvite_log_batches{job="flights",key_groups="4-7",operator="flights"}' in text
    damaged = site.storage / "flights" / layout.JOB
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-3])
    wait_for(lambda: get(port, "/readyz")[0] == 503, site)
    assert "flights: following the chain failed" in json.loads(get(port, "/readyz")[1])["reasons"][0]
    assert get(port, "/healthz")[0] == 200
    damaged.write_bytes(whole)
    wait_for(lambda: get(port, "/readyz")[0] == 200, site)
    assert sidecar.end() == 0, site.logs()


def test_now_asks_the_materializer_that_runs(site: Site) -> None:
    site.job.start()
    site.commit(5)
    sidecar = site.sidecar("--interval", "10000 d", "--job", "flights")
    command = [sys.executable, "-m", "varvite.materializer", "--storage", f"file://{site.storage}", "--job"]
    done = subprocess.run([*command, "flights", "--now"], check=True, capture_output=True, text=True)
    assert done.stdout == "flights: materialization requested\n"
    wait_for(lambda: sidecar.count(Materialized) == 2, site)
    assert {e.trigger for e in sidecar.events() if isinstance(e, Materialized)} == {"demand"}
    missing = subprocess.run([*command, "nobody", "--now"], check=False, capture_output=True, text=True)
    assert missing.returncode == 1
    assert "there is no job 'nobody'" in missing.stderr
    site.commit(2)
    assert len(site.job.adopted) == 1
    assert sidecar.end() == 0, site.logs()
    site.check()


@pytest.mark.long
def test_a_paused_materializer_is_replaced_and_harms_nothing_when_it_wakes(site: Site) -> None:
    """SIGSTOP at any moment: the job goes on with another one, collection included; then both go on."""
    site.job.start()
    site.commit(4)
    paused = site.sidecar(name="paused")
    site.commit_until(lambda: paused.count(Materialized) >= 1)
    for _ in range(3):
        time.sleep(0.3 * site.rng.random())
        paused.process.send_signal(signal.SIGSTOP)
        other = site.sidecar(name="other")
        before = len(site.job.adopted)
        site.commit_until(lambda wanted=before + 2: len(site.job.adopted) >= wanted)  # type: ignore[misc]
        paused.process.send_signal(signal.SIGCONT)
        site.commit(3)
        site.check()
        assert other.end() == 0, site.logs()
    before = paused.count(Materialized)
    site.commit_until(lambda: paused.count(Materialized) > before)
    assert paused.end() == 0, site.logs()
    site.check()
