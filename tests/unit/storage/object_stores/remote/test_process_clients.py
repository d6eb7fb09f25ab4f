"""The rule for clients in processes that fork, with real forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.remote.process_clients import ProcessClients
made = []
def clients(library="fragile"):
    return ProcessClients(lambda: made.append(os.getpid()) or object(), url="s3://b/a", library=library,
                          survives_fork=library != "fragile")
def in_child(run):
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
def refused():
    for each in (fragile, clients()):
        try:
            each.client()
        except InvalidRequestError as error:
            assert "s3://b/a cannot be used in process" in str(error) and "'spawn'" in str(error), error
        else:
            raise AssertionError("a request would hang")
    assert robust.client() is not kept and made[-1] == os.getpid()
fragile, robust = clients(), clients("robust")
in_child(fragile.client)                               # nobody has made a request
kept = robust.client()
in_child(fragile.client)                               # nobody has made one with this library
assert fragile.client() is fragile.client() and made == [os.getpid()] * 2
in_child(refused)
in_child(lambda: in_child(refused))
assert fragile.client() is fragile.client()            # the parent goes on
"""


def test_a_child_has_clients_of_its_own_and_is_told_of_those_that_would_hang() -> None:
    source = Path(__file__).resolve().parents[5] / "src"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
