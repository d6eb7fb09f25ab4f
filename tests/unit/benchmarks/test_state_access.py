"""The figures of single accesses of state."""

from __future__ import annotations

from benchmarks.state_access import PIECE, STORES, Size, measure_kind, median_ns, pieces
from benchmarks.workloads.accesses import KINDS


def test_medians_are_per_operation() -> None:
    assert median_ns([(300, 30), (100, 10), (200, 20)], 10) == (20.0, 2.0)
    assert median_ns([(300, 30)], 0) == (0.0, 0.0)


def test_pieces_are_as_large_as_an_arrow_batch() -> None:
    rows = [(0, "key", n) for n in range(2 * PIECE + 1)]
    assert [len(piece) for piece in pieces(rows)] == [PIECE, PIECE, 1]


def test_every_access_of_every_kind_is_measured_with_and_without_changelog() -> None:
    for changelog in (True, False):
        found = [c for kind in KINDS for c in measure_kind("hashmap", kind, Size(200, 5, 1, 1), changelog=changelog)]
        assert {(c["state"], c["access"]): c["mutations"] for c in found} == {
            ("value", "(key only)"): 0,
            ("value", "get"): 0,
            ("value", "update"): 5,
            ("list", "get all"): 0,
            ("list", "add"): 5,
            ("map", "get"): 0,
            ("map", "put"): 5,
            ("map", "iterate"): 0,
        }
        assert all(c["access_ns"] > 0 for c in found)
        assert all(("fold_ns" in c) == changelog for c in found)
    assert len(STORES) == 3
