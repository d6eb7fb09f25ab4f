"""The sidecar as a process of its own, on local disk, beside a job that commits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.sidecar_site import PATIENCE_S, QUICK, Sidecar, Site
from varvite.materializer.monitoring.events import Adopted, Collected, Materialized
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.service.child_process import start_materializer_process
from varvite.materializer.service.sharing import Membership, beat
from varvite.storage import fail_point
from varvite.storage.format import layout

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.sidecar
MATERIALIZER_FAIL_POINTS = [name for name in fail_point.NAMES if name.startswith("materializer.")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_follows_a_job_that_starts_later_and_ends_when_asked(site: Site, number: signal.Signals) -> None:
    sidecar = site.sidecar("--job", "flights")
    deadline = time.monotonic() + PATIENCE_S
    while not sidecar.events():
        assert time.monotonic() < deadline, site.logs()
        time.sleep(0.05)
    site.job.start()
    site.commit_until(lambda: sidecar.count(Adopted) >= 4 and sidecar.count(Collected) >= 1)
    assert site.job.adopted
    started = time.monotonic()
    assert sidecar.end(number) == 0, site.logs()
    assert time.monotonic() - started < 30
    site.check()
    assert len(site.store.list(layout.CHAIN)) < site.job.batch


@pytest.mark.long
def test_sigkill_at_any_moment_harms_nothing(site: Site) -> None:
    site.job.start()
    site.commit(5)
    for _ in range(5):
        sidecar = site.sidecar()
        site.commit(2)
        # Starting takes about a second; the rest falls into folding, publishing and collecting.
        time.sleep(0.4 + 1.2 * site.rng.random())
        site.commit(2)
        sidecar.end(signal.SIGKILL)
        site.check()
    last = site.sidecar()
    before = len(site.job.adopted)
    site.commit_until(lambda: len(site.job.adopted) >= before + 2 and last.count(Materialized) >= 2)
    assert last.end() == 0, site.logs()
    site.check()


@pytest.mark.parametrize("name", MATERIALIZER_FAIL_POINTS)
def test_sigkill_at_every_step_harms_nothing(site: Site, name: str) -> None:
    site.job.start()
    site.commit(6)
    setting = {fail_point.VARIABLE: f"{name}:2:{site.directory / 'marker'}"}
    sidecar = site.sidecar(environment=setting)
    site.commit_until(lambda: sidecar.process.poll() is not None)
    assert sidecar.process.returncode == -signal.SIGKILL, site.logs()
    site.check()
    again = site.sidecar(environment=setting)
    before = len(site.job.adopted)
    site.commit_until(lambda: len(site.job.adopted) >= before + 2)
    assert again.end() == 0, site.logs()
    site.check()


def test_it_goes_on_when_nobody_reads_its_output_any_more(site: Site) -> None:
    site.job.start()
    reading, writing = os.pipe()
    status = site.directory / "status.jsonl"
    command = [sys.executable, "-m", "varvite.materializer", "--storage", f"file://{site.storage}", *QUICK, "--json"]
    command += ["--working-directory", str(site.directory / "work"), "--status-file", str(status)]
    process = subprocess.Popen(command, stdout=writing, stderr=writing)
    site.processes.append(process)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    sidecar = Sidecar(process, status)
    site.commit_until(lambda: sidecar.count(Materialized) >= 4)
    assert process.poll() is None
    process.kill()


def test_two_sidecars_at_once_are_harmless(site: Site) -> None:
    site.job.start()
    sidecars = [site.sidecar(name="a"), site.sidecar(name="b")]
    site.commit_until(lambda: len(site.job.adopted) >= 4)
    assert [sidecar.end() for sidecar in sidecars] == [0, 0], site.logs()
    site.check()


def test_once_materializes_everything_and_ends(site: Site) -> None:
    site.job.start()
    site.commit(6)
    sidecar = site.sidecar("--once")
    assert sidecar.process.wait(PATIENCE_S) == 0, site.logs()
    done = [event for event in sidecar.events() if isinstance(event, Materialized)]
    assert [(e.operator, e.low, e.high, e.trigger) for e in done] == [
        ("flights", 0, 4, "demand"),
        ("flights", 4, 8, "demand"),
    ]
    assert all(e.log_before.batches > e.log_after.batches for e in done)
    site.commit()
    assert len(site.job.adopted) == 1
    site.check()


def test_exit_codes_of_once(site: Site) -> None:
    missing = site.sidecar("--once", "--job", "nobody")
    assert missing.process.wait(PATIENCE_S) == 1
    site.storage.mkdir(exist_ok=True)
    nothing = site.sidecar("--once")
    assert nothing.process.wait(PATIENCE_S) == 1, "there is no job"
    wrong = site.sidecar("--interval", "ten parsecs")
    assert wrong.process.wait(PATIENCE_S) == 2
    site.job.start()
    site.commit(4)
    names = [meta.name for meta in site.store.list(layout.CHAIN)]
    path = site.storage / "flights" / names[-1]
    path.write_bytes(path.read_bytes()[:-3])
    damaged = site.sidecar("--once")
    assert damaged.process.wait(PATIENCE_S) == 1
    assert names[-1] in site.logs()


def test_once_leaves_nothing_to_members_that_share(site: Site) -> None:
    """The ranges of one that was killed would wait for nobody."""
    site.job.start()
    site.commit(4)
    for number in range(30):
        beat(site.store, Membership(f"{number:032x}"), 0)
    sidecar = site.sidecar("--once", "--share")
    assert sidecar.process.wait(PATIENCE_S) == 0, site.logs()
    assert sidecar.count(Materialized) == 2


def test_an_embedded_materializer_works_and_stops(site: Site) -> None:
    site.job.start()
    status = site.directory / "status.jsonl"
    log = site.directory / "child.log"
    config = MaterializerConfig(
        storage_url=str(site.storage),
        job="flights",
        interval_ms=100,
        poll_ms=50,
        working_directory=site.directory / "w",
    )
    with start_materializer_process(config, log_path=log, status_path=status) as child:
        site.commit_until(lambda: len(site.job.adopted) >= 2)
        assert child.exit_code is None
        shown = Path(f"/proc/{child.pid}/cmdline")
        if shown.exists():
            assert str(site.storage).encode() not in shown.read_bytes(), "options may hold secrets"
        assert child.stop() == 0, log.read_text()
    assert child.stop() == 0
    assert {json.loads(line)["event"] for line in status.read_bytes().splitlines()} >= {"materialized", "adopted"}
    assert "published" in log.read_text()
    site.check()


def test_an_embedded_materializer_does_what_the_driver_says_whatever_a_sidecar_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's environment may hold the variables of a sidecar beside it, and of another job."""
    elsewhere = site.directory / "elsewhere"
    elsewhere.mkdir()
    for name, value in {"STORAGE": str(elsewhere), "JOB": "another", "ONCE": "true", "INTERVAL": "never"}.items():
        monkeypatch.setenv(f"VARVITE_MATERIALIZE_{name}", value)
    site.job.start()
    log = site.directory / "child.log"
    config = MaterializerConfig(storage_url=str(site.storage), job="flights", interval_ms=100, poll_ms=50)
    with start_materializer_process(config, log_path=log) as child:
        site.commit_until(lambda: bool(site.job.adopted))
        assert child.exit_code is None, log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_an_embedded_materializer_ends_with_its_parent(site: Site) -> None:
    """However the parent ends: here it is killed."""
    site.job.start()
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from varvite.materializer.service.child_process import start_materializer_process\n"
        "from varvite.materializer.options.materializer_config import MaterializerConfig\n"
        "import threading\n"
        "started = []\n"
        "def start():\n"
        "    config = MaterializerConfig(storage_url=sys.argv[1], working_directory=Path(sys.argv[2]))\n"
        "    started.append(start_materializer_process(config))\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        "print(started[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(site.storage), str(site.directory / "w")], stdout=subprocess.PIPE
    )
    site.processes.append(parent)
    assert parent.stdout is not None
    with parent.stdout as output:
        child = int(output.readline())
    time.sleep(2)
    assert _is_running(child), "the end of the thread that started it is not the end of the parent"
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + PATIENCE_S
    while _is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
