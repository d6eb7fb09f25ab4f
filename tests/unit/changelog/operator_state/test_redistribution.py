from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.operator_state.redistribution import Place, redistributed, union_shares
from varvite.changelog.operator_state.section import SectionKind, StateSection, section_of

KEY_GROUPS = 16


def place(partition: int, parallelism: int) -> Place:
    return Place(partition, parallelism, *key_range(partition, parallelism, KEY_GROUPS))


def section(kind: SectionKind, rows: list[Any], value_type: str = "1:long", name: str = "s") -> StateSection:
    made = section_of(name, kind, rows, value_type, "1:string" if kind == "broadcast" else None)
    assert made is not None
    return made


def wire(*numbers: int) -> list[bytes]:
    return [bytes([number]) for number in numbers]


def rows_of(sections: tuple[StateSection, ...]) -> list[Any]:
    return [row for one in sections for row in one.decoded()]


def shares(images: dict[int, list[StateSection]], before: int, after: int) -> list[list[Any]]:
    return [rows_of(redistributed(images, before, place(p, after))) for p in range(after)]


@pytest.mark.parametrize("kind", ["list", "raw-operator"])
class TestSplit:
    def test_with_the_same_parallelism_each_keeps_its_own(self, kind: SectionKind) -> None:
        images = {0: [section(kind, wire(1, 2, 3))], 2: [section(kind, wire(4))]}
        assert shares(images, 3, 3) == [wire(1, 2, 3), [], wire(4)]

    @pytest.mark.parametrize("after", [1, 2, 4, 5, 7, 16])
    def test_with_another_all_elements_are_there_once_in_order_and_in_equal_shares(
        self, kind: SectionKind, after: int
    ) -> None:
        images = {0: [section(kind, wire(1, 2, 3, 4))], 1: [], 2: [section(kind, wire(5, 6, 7))]}
        found = shares(images, 3, after)
        assert [row for share in found for row in share] == wire(1, 2, 3, 4, 5, 6, 7)
        assert max(map(len, found)) - min(map(len, found)) <= 1

    def test_elements_of_different_types_keep_them(self, kind: SectionKind) -> None:
        images = {0: [section(kind, wire(1, 2), "1:int")], 1: [section(kind, wire(3, 4), "1:long")]}
        (first, second, third) = (redistributed(images, 2, place(p, 3)) for p in range(3))
        assert [(s.value_type, s.rows) for s in (*first, *second, *third)] == [
            ("1:int", 1), ("1:int", 1), ("1:long", 2),
        ]  # fmt: skip
        (all_of_them,) = (redistributed(images, 2, place(0, 1)),)
        assert [(s.value_type, s.rows) for s in all_of_them] == [("1:int", 2), ("1:long", 2)]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_of_a_union_list_each_gets_all_elements_even_with_the_same_parallelism(after: int) -> None:
    images = {0: [section("union-list", wire(1, 2))], 1: [section("union-list", wire(3))]}
    assert shares(images, 2, after) == [wire(1, 2, 3)] * after
    assert len(redistributed(images, 2, place(0, after))) == 1, "one section, so that it can be compared"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_of_a_union_list_that_nobody_asks_for_each_keeps_a_share(after: int) -> None:
    images = {
        0: [section("union-list", wire(1, 2)), section("list", wire(9), name="l")],
        1: [section("union-list", wire(3))],
    }
    kept = [union_shares(images, 2, place(p, after)) for p in range(after)]
    assert [list(shares) for shares in kept] == [["s"]] * after
    found = [rows_of(tuple(shares["s"])) for shares in kept]
    assert [row for rows in found for row in rows] == wire(1, 2, 3)
    assert found[0] == (wire(1, 2) if after == 2 else wire(1, 2, 3)[: 3 // after])


def test_of_a_broadcast_state_each_gets_a_copy_of_its_own_or_of_another() -> None:
    def entries(value: bytes) -> list[StateSection]:
        return [section("broadcast", [(b"k", value), (b"l", None)])]

    images = {0: entries(b"0"), 2: entries(b"2")}
    assert [rows[0][1] for rows in shares(images, 3, 3)] == [b"0", b"2", b"2"]
    assert [rows[0][1] for rows in shares(images, 3, 5)] == [b"0", b"2", b"0", b"2", b"0"]
    assert all(rows[1] == (b"l", None) for rows in shares(images, 3, 5))


@pytest.mark.parametrize("after", [1, 2, 3, 16])
def test_raw_keyed_streams_go_with_their_key_groups(after: int) -> None:
    groups = {0: range(8), 1: range(8, 16)}
    images = {p: [section("raw-keyed", [(g, b"%d" % g) for g in own if g != 5], "")] for p, own in groups.items()}
    found = shares(images, 2, after)
    for p, rows in enumerate(found):
        low, high = key_range(p, after, KEY_GROUPS)
        assert rows == [(g, b"%d" % g) for g in range(low, high) if g != 5]


def test_states_of_all_names_and_kinds_are_redistributed_each_by_its_kind() -> None:
    own = [section("union-list", wire(1), name="u"), section("list", wire(2, 3), name="a")]
    found = redistributed({0: own, 1: own}, 2, place(1, 4))
    assert [(s.name, s.decoded()) for s in found] == [("a", wire(3)), ("u", wire(1, 1))]


def test_nothing_gives_nothing() -> None:
    assert redistributed({}, 2, place(0, 3)) == ()
    assert redistributed({0: [], 1: []}, 2, place(0, 3)) == ()
