"""Content of the golden image of non-keyed state; `python -m tests.golden.writers.operator_state` wrote it.

As with the other golden files: it is never written again. (Run as a program it refuses to overwrite.)
"""

from __future__ import annotations

from tests.golden.writers.changelog import DATA
from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor
from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.operator_state.image import Image, encode_image
from varvite.changelog.types.factory import Types

FILE = DATA / "operator-state-v1.bin"
OPERATOR = "per-plane/ä"
JOB_ID = "0123456789abcdef0123456789abcdef"
WAITING = ListStateDescriptor("waiting", Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()]))
OFFSETS = ListStateDescriptor("offsets", Types.LIST(Types.LONG()))
RULES = MapStateDescriptor("rules", Types.STRING(), Types.DOUBLE())
EMPTY = ListStateDescriptor("empty", Types.LONG())


def image() -> Image:
    """Every kind of state."""
    backend = OperatorStateBackend(OPERATOR)
    backend.get_list_state(WAITING).update([("a", 1), ("b", None)])
    backend.get_union_list_state(OFFSETS).update([[0, 10], [1, -(2**63)]])
    backend.get_broadcast_state(RULES).put_all({"z": 0.5, "a": None})
    backend.get_list_state(EMPTY).update([])
    backend.set_raw_streams([b"", b"\x00\xff"], [(0, b"zero"), (127, b"")])
    return Image(JOB_ID, OPERATOR, backend.sections())


def main() -> None:
    """Write the file."""
    if FILE.exists():
        raise SystemExit(f"{FILE} exists; a golden file is never written again")
    FILE.write_bytes(encode_image(image()))


if __name__ == "__main__":
    main()
