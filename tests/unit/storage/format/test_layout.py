"""Names of objects that are made of users' names."""

from __future__ import annotations

from varvite.storage.format import layout
from varvite.storage.object_stores.names import check_name

TOKEN = "f" * 32
LONG = ("x" * 300, "ж" * 60, "状" * 60, "." * 100, "ж" * 26 + "z" * 99)


def files_of(state: str) -> tuple[str, str]:
    """Names in a canonical savepoint of the files of a keyed and of a non-keyed state."""
    return layout.savepoint_file(TOKEN, "op", state, 0, 8), layout.savepoint_table(TOKEN, "op", state, "broadcast")


def test_a_state_with_a_long_name_can_be_in_a_canonical_savepoint() -> None:
    """Nothing limits the name of a state, but no store has room for more than 255 bytes between two slashes."""
    names = [name for state in (*LONG, *(f"{state}." for state in LONG)) for name in files_of(state)]
    assert len(set(names)) == len(names)
    for name in names:
        assert check_name(name) == name
        assert layout.savepoint_token(name) == TOKEN
        assert not layout.is_foreign(name)
        assert all(len(escape) >= 3 for part in name.split("/") for escape in escapes(part)), "none is cut through"


def escapes(segment: str) -> list[str]:
    return [f"%{rest.partition('-')[0][:2]}" for rest in segment.split("%")[1:]]


def test_the_files_of_other_states_are_called_as_ever() -> None:
    for state, quoted in (("total", "total"), ("a.b/ж", "a%2Eb%2F%D0%B6"), ("y" * 200, "y" * 200)):
        keyed, table = files_of(state)
        assert keyed == f"savepointdata/{TOKEN}/op/{quoted}/00000-00008.parquet"
        assert table == f"savepointdata/{TOKEN}/op/{quoted}.broadcast.parquet"
