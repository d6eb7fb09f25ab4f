"""Keys and values of RocksDB as bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.strategies import any_types, hashable_types, typed_values
from varvite.changelog.types.wire import end_of
from varvite.changelog.working_stores.rocksdb import keys
from varvite.storage.errors import CorruptDataError, InvariantError

groups = st.integers(0, keys.KEY_GROUP_END - 1)


@given(typed_values(any_types()), st.binary(max_size=8), st.binary(max_size=3))
def test_a_wire_form_ends_where_it_ends_whatever_follows(typed: tuple[Any, Any], after: bytes, before: bytes) -> None:
    kind, value = typed
    wire = kind.to_wire(kind.freeze(value))
    assert end_of(before + wire + after, len(before)) == len(before) + len(wire)


@given(typed_values(any_types()))
def test_a_wire_form_that_is_cut_off_is_found(typed: tuple[Any, Any]) -> None:
    kind, value = typed
    wire = kind.to_wire(kind.freeze(value))
    for length in range(len(wire)):
        with pytest.raises(CorruptDataError):
            end_of(wire[:length], 0)


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=40,
))  # fmt: skip
def test_any_messagepack_value_is_spanned(value: Any) -> None:
    wire = msgspec.msgpack.encode(value)
    assert end_of(wire + b"\xc1", 0) == len(wire)


@pytest.mark.parametrize("size", [255, 256, 65_535, 65_536])
def test_long_strings_binaries_and_arrays_are_spanned(size: int) -> None:
    for value in ("x" * size, b"x" * size, [1] * size, dict.fromkeys(range(size))):
        wire = msgspec.msgpack.encode(value)
        assert end_of(wire, 0) == len(wire)
    ext = msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x" * size))
    assert end_of(ext, 0) == len(ext)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 16])
def test_extensions_are_spanned(size: int) -> None:
    ext = msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x" * size))
    assert end_of(ext, 0) == len(ext)


def test_the_byte_that_messagepack_never_uses_is_refused() -> None:
    with pytest.raises(CorruptDataError):
        end_of(b"\xc1", 0)


@given(groups, groups, groups, groups)
def test_prefixes_sort_by_key_group_and_then_by_state(a: int, b: int, c: int, d: int) -> None:
    assert (keys.prefix(a, b) < keys.prefix(c, d)) == ((a, b) < (c, d))
    assert keys.prefix(a, b)[:2] == keys.key_group_start(a)
    assert keys.key_group_start(a) <= keys.prefix(a, b) < keys.key_group_start(a + 1)


@given(groups, groups, st.binary(max_size=6))
def test_metadata_sorts_after_every_row(group: int, state: int, rest: bytes) -> None:
    assert keys.prefix(group, state) + rest < keys.metadata_key("marker")
    assert keys.metadata_key("marker") >= keys.key_group_start(keys.KEY_GROUP_END)


@pytest.mark.parametrize(("group", "state"), [(-1, 0), (0, -1), (0xFFFF, 0), (0, 0xFFFF)])
def test_numbers_that_do_not_fit_are_a_bug(group: int, state: int) -> None:
    with pytest.raises(InvariantError):
        keys.prefix(group, state)


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_the_successor_bounds_exactly_the_keys_with_the_prefix(start: bytes, other: bytes) -> None:
    if not start.rstrip(b"\xff"):
        with pytest.raises(InvariantError):
            keys.successor(start)
        return
    end = keys.successor(start)
    assert start < end
    assert (start <= other < end) == other.startswith(start)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_elements_sort_by_seq_and_then_by_position(a: int, b: int, c: int, d: int) -> None:
    assert (keys.element(a, b) < keys.element(c, d)) == ((a, b) < (c, d))
    assert len(keys.element(a, b)) == keys.ELEMENT_BYTES


@given(typed_values(hashable_types()), typed_values(hashable_types()))
def test_a_map_key_is_cut_where_the_key_ends(first: tuple[Any, Any], second: tuple[Any, Any]) -> None:
    key, map_key = (kind.to_wire(kind.freeze(value)) for kind, value in (first, second))
    assert keys.split_map_key(keys.prefix(3, 4) + key + map_key) == (key, map_key)
    with pytest.raises(CorruptDataError):
        keys.split_map_key(keys.prefix(3, 4) + key)


@given(st.integers(0, keys.VERSION_NUMBER_MAX), st.none() | st.integers(-(2**63), 2**63 - 1), st.binary(max_size=5))
def test_values_come_back(version: int, stamp: int | None, wire: bytes) -> None:
    assert keys.split_value(keys.value(version, wire, stamp)) == (version, stamp, wire)


@given(st.integers(0, 1000))
def test_a_schema_version_is_stored_modulo_128(version: int) -> None:
    assert keys.header(version) == bytes((version % 128,))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80" + bytes(7)])
def test_a_value_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        keys.split_value(data)


def test_the_layout_is_the_documented_one() -> None:
    assert keys.prefix(0x0102, 0x0304).hex() == "01020304"
    assert keys.element(1, 2).hex() == "0000000000000001" + "00000002"
    assert keys.metadata_key("version") == b"\xff\xff\xff\xffversion"
    assert keys.value(5, b"\xc0").hex() == "05c0"
    assert keys.value(5, b"\xc0", 1).hex() == "85" + "0000000000000001" + "c0"
    assert keys.value(5, b"").hex() == "05"
