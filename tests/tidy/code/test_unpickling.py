"""Only what the user shipped with the job is unpickled; stored state never is, unless it is of the pickled type.

A pickle runs code of whoever wrote it. So this list holds every place of the product that loads one, each with its
reason, and none of them but the last is given bytes from the storage.
"""

from __future__ import annotations

import pytest

from tests.tidy.code.unpickling import unpickling_places
from tests.tidy.project_files import ROOT

DIRECTORIES = ("storage", "changelog", "materializer", "spark_integration", "src")
FUNCTION = "the user's function, which the driver has sent"
OWN_ERROR = "an exception that this very process has pickled"
ERROR = "an exception from the state worker, a process of this very job"
ALLOWED: dict[str, str] = {
    "spark_integration/plan/element_operator.py::OperatorElements.__init__": FUNCTION,
    "spark_integration/plan/function_chain.py::FunctionChain._load": FUNCTION,
    "spark_integration/functions/stateless.py::SideOutputOf.open": FUNCTION,
    "spark_integration/worker/runners/operator.py::OperatorRunner._loaded": FUNCTION,
    "spark_integration/messages/user_errors.py::user_error": OWN_ERROR,
    "spark_integration/worker/process/accumulators.py::WorkerAccumulators.reset": FUNCTION,
    "spark_integration/worker/process/request_handler.py::adopt_environment": "the task's context, sent by the pump",
    "spark_integration/worker/process/request_handler.py::load_broadcasts": "the user's variables, sent by the driver",
    "spark_integration/worker/process/request_handler.py::describe_failure": OWN_ERROR,
    "spark_integration/transport/pump.py::failure_error": ERROR,
    "spark_integration/messages/user_errors.py::user_function_error": ERROR,
    "changelog/types/collections.py::PickledType.load": "values of the pickled type: docs/operate/security.md",
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import pickle\npickle.loads(b'')", [2]),
        ("import pickle as p\np.loads(b'')", [2]),
        ("import pickle\np = pickle\nq = p\nq.loads(b'')", [4]),
        ("from pyspark import cloudpickle\ncloudpickle.load(f)", [2]),
        ("from pyspark import cloudpickle as cp\ncp.loads(b'')", [2]),
        ("import pyspark.cloudpickle as c\nc.load(f)", [2]),
        ("import pyspark\npyspark.cloudpickle.loads(b'')", [2]),
        ("from pickle import loads", [1]),
        ("from pickle import loads as ls\ndef f(b):\n    return ls(b)", [1, 3]),
        ("from pickle import *\nload(f)", [1]),
        ("from _pickle import load as read\nmap(read, files)", [1, 2]),
        ("import pickle\nread = pickle.load\nread(f)", [2, 3]),
        ("import json as m\nm.loads('1')\nm = json\nimport pickle\nm = pickle", [2]),
        ("try:\n    import dill as d\nexcept ImportError:\n    import json as d\nd.load(f)", [5]),
        ("import pickle\nif (read := pickle.load)(f): pass", [2]),
        ("import pickle\nread: Any = pickle.load", [2]),
        ("import importlib\nimportlib.import_module('pyspark.cloudpickle').loads(b'')", [2]),
        ("from importlib import import_module as i\nm = i('pickle')\nm.load(f)", [3]),
        ("__import__('pickle').load(f)", [1]),
        ("import pickle\ngetattr(pickle, 'load')(f)", [2]),
        ("import pickle\nread = getattr(pickle, 'load')\nread(f)", [2, 3]),
        ("from pyspark.serializers import CPickleSerializer\nCPickleSerializer().loads(b'')", [1, 2]),
        (
            "from pyspark.serializers import CPickleSerializer as S\ns = S()\ndef f(b):\n    return s.loads(b)",
            [1, 2, 4],
        ),
        ("from pyspark import serializers\nserializers.AutoSerializer().load_stream(f)", [2]),
        ("import pyspark.serializers as s\ns.CloudPickleSerializer().loads(b'')", [2]),
        ("from pyspark.worker_util import read_command", [1]),
        ("from pyspark.core import broadcast as b\nb.Broadcast(path=p).value", [2]),
        ("from pyspark import Broadcast\nBroadcast(sock_file=f)", [2]),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", [2]),
        ("import numpy\nnumpy.load(f, allow_pickle=wanted)", [2]),
        ("from numpy import load\nload(f, None, True)", [2]),
        ("import numpy as np\nnp.load(f, **options)", [2]),
        ("import functools\nfunctools.partial(anything, allow_pickle=True)", [2]),
        ("import pandas as pd\npd.read_pickle(f)", [2]),
        ("from pandas import read_pickle as rp\nrp(f)", [1, 2]),
        ("import pickle\nclass A(pickle.Unpickler): pass", [2]),
        ("from pickle import Unpickler as U\nclass A(U): pass", [1, 2]),
        ("import shelve as s\ns.open(f)", [2]),
        ("import marshal, dill as d\nmarshal.loads(b'')\nd.load(f)", [2, 3]),
        ("def f(serializer, b):\n    return serializer.loads(b)", [2]),
        ("import json, pickle\njson.loads('1'); pickle.dumps(1)", []),
        ("import json as j, numpy as np\nj.loads('1'); np.load(f); np.load(f, allow_pickle=False)", []),
        ("def f(kind, b):\n    return kind.load(b), open(b)", []),
        ("from pyspark import Broadcast\ndef f(b: Broadcast): return b.value", []),
    ],
)
def test_unpickling_is_found(source: str, lines: list[int]) -> None:
    assert sorted({place.line for place in unpickling_places(source)}) == lines


def test_a_place_is_told_by_its_function() -> None:
    source = "import pickle\nclass A:\n    def b(self):\n        def c(): return pickle.load(f)\npickle.load(f)"
    assert [place.function for place in unpickling_places(source)] == ["A.b.c", "<module>"]


def test_nothing_is_unpickled_but_at_the_places_of_the_list() -> None:
    found = {
        f"{path.relative_to(ROOT)}::{place.function}"
        for name in DIRECTORIES
        for path in {path.resolve() for path in (ROOT / name).rglob("*.py")}
        for place in unpickling_places(path.read_text())
    }
    assert found == set(ALLOWED)


def test_neither_storage_nor_the_sidecar_can_unpickle() -> None:
    """They read what anybody with access to the storage can have written."""
    assert [name for name in ALLOWED if name.startswith(("storage/", "materializer/"))] == []
