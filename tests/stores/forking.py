"""Programs that fork while they use a store, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FORKING = """
import json, os, sys
from varvite.storage.object_stores.remote.store import RemoteStore
store = RemoteStore(sys.argv[1], json.loads(sys.argv[2]))
store.put("parent/before", b"x")                       # the parent's threads and connections exist at the fork
child = os.fork()
if child == 0:
    assert store.get("parent/before") == b"x"
    assert store.put_if_absent("child", b"y")
    grandchild = os.fork()
    if grandchild == 0:
        assert store.get("child") == b"y"
        os._exit(0)
    assert os.waitpid(grandchild, 0)[1] == 0
    sys.exit(0)                                        # with everything Python does at exit
assert os.waitpid(child, 0)[1] == 0
assert store.get("child") == b"y"                      # the parent's connections are still its own
store.put("parent/after", b"z")
print([meta.name for meta in store.list("")])
"""
"""Arguments: a location, and storage options."""

REFUSED_AFTER_A_FORK = """
import json, os, sys
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.remote.store import RemoteStore
def is_refused():
    for opened in (store, RemoteStore(store.url, options)):
        try:
            opened.get("parent/before")
        except InvalidRequestError as error:
            assert f"forked from a process that had used {library}" in str(error) and "engine=s3fs" in str(error), error
        else:
            return False
    return library != "obstore" or RemoteStore(store.url, {**options, "engine": "s3fs"}).get("parent/before") == b"x"
options = json.loads(sys.argv[2])
library = RemoteStore(sys.argv[1], options)._dialect.library
store = RemoteStore(sys.argv[1], options)
unused = os.fork()                                     # before the first request: it has a client of its own
if unused == 0:
    assert store.put_if_absent("child", b"y")
    sys.exit(0)
assert os.waitpid(unused, 0)[1] == 0
store.put("parent/before", b"x")
child = os.fork()
if child == 0:
    assert is_refused()
    grandchild = os.fork()
    if grandchild == 0:
        assert is_refused()
        sys.exit(0)
    sys.exit(os.waitpid(grandchild, 0)[1])
assert os.waitpid(child, 0)[1] == 0
store.put("parent/after", b"z")
print([meta.name for meta in store.list("")])
"""
"""The same for a client that does not survive a fork."""


def run_forking(program: str, location: str, options: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a program with these arguments in a process of its own, with warnings as errors."""
    source = Path(__file__).resolve().parents[2] / "src"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, location, json.dumps(options)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
