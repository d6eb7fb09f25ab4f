"""Classes are decoded by several threads at once, the first time, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from varvite.storage.format.inspection import inspected

PROGRAM = """
import sys, threading, msgspec
from varvite.storage.format.inspection import inspected

SOURCE = '''
class Inner(msgspec.Struct):
    number: int

class Outer(msgspec.Struct):
    inner: Inner
    text: str | None
    numbers: tuple[int, ...]
'''

def decode(kind, barrier, data):
    barrier.wait()
    for _ in range(20):
        assert msgspec.msgpack.decode(data, type=inspected(kind)).inner.number == 1

sys.setswitchinterval(1e-6)
data = msgspec.msgpack.encode({"inner": {"number": 1}, "text": "a", "numbers": [1, 2]})
for _ in range(1000):
    names = {"msgspec": msgspec}
    exec(SOURCE, names)
    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=decode, args=(names["Outer"], barrier, data)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_two_threads_decode_a_class_for_the_first_time() -> None:
    """Without `inspected` the process ends with a segmentation fault (msgspec 0.22)."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr


def test_a_type_that_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(TypeError):
        inspected(list[int] | list[str])
