"""`Row` behaves as PyFlink's (pyflink/common/types.py), but cannot be changed."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
from pyspark.sql import Row as SparkRow

from varvite.changelog.row import Row, row_class


def test_fields_are_read_by_position_name_and_attribute() -> None:
    row = Row(name="Ann", age=11)
    assert (row[0], row["age"], row.name, row[-1], row[0:1]) == ("Ann", 11, "Ann", 11, ("Ann",))
    assert (len(row), list(row)) == (2, ["Ann", 11])
    assert row.get_field_names() == ["name", "age"], "in the order given; PyFlink sorts them"
    assert row.get_fields_by_names(["age", "name"]) == [11, "Ann"]


def test_a_row_without_names_has_positions_only() -> None:
    row = Row("Ann", 11)
    assert (row[0], row.get_field_names(), repr(row)) == ("Ann", None, repr(SparkRow("Ann", 11)))
    with pytest.raises(KeyError):
        row["name"]
    with pytest.raises(AttributeError):
        _ = row.name
    with pytest.raises(TypeError):
        row.as_dict()


def test_unknown_fields_are_errors() -> None:
    row = Row(name="Ann")
    with pytest.raises(KeyError):
        row["age"]
    with pytest.raises(AttributeError, match="age"):
        _ = row.age
    with pytest.raises(IndexError):
        row[1]
    with pytest.raises(KeyError):
        row.replace(age=1)


def test_a_row_makes_rows_like_a_class() -> None:
    person = Row("name", "age")
    assert person("Ann", 11) == Row(name="Ann", age=11)
    assert person("Ann", 11).age == 11
    for values in ((1, 2, 3), (1,)):
        with pytest.raises(ValueError, match=f"{len(values)} values"):
            person(*values)


def test_a_row_cannot_be_changed_but_replaced() -> None:
    row = Row(name="Ann", age=11)
    with pytest.raises(TypeError):
        row[0] = "Bob"  # type: ignore[index]
    with pytest.raises(AttributeError):
        row.name = "Bob"
    assert row.replace(age=12) == Row(name="Ann", age=12)
    assert row.age == 11


def test_in_asks_for_names_and_without_names_for_values() -> None:
    """A guard such as `if "score" in row` took the other branch."""
    row = Row(name="Alice", n=None)
    assert ("name" in row, "Alice" in row, None in row, 0 in row) == (True, False, False, False)
    assert ("Alice" in Row("Alice", 1), "name" in Row("Alice", 1)) == (True, False)


def test_rows_are_equal_with_the_same_names_and_values() -> None:
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert Row(a=1, b=2) == Row("a", "b")(1, 2)
    assert Row(1, 2) == Row(1, 2)
    others = [
        Row(a=2, b=1),
        Row(b=1, a=2),
        Row(1, 2),
        (1, 2),
        [1, 2],
        Row(a=1),
        Row(a=1, b=2, c=3),
        Row(a=1, c=2),
        None,
    ]
    for other in others:
        assert Row(a=1, b=2) != other
        assert other != Row(a=1, b=2)
    assert Row(1, 2) != (1, 2)
    assert Row(a=1) != Row(b=1)
    assert Row(a=Row(x=1)) == Row(a=Row(x=1)) != Row(a=Row(y=1))


def test_a_row_equals_one_of_pyspark_with_the_same_names_and_values() -> None:
    from pyspark.sql import Row as SparkRow

    assert Row(a=1, b=Row(c=2)) == SparkRow(b=SparkRow(c=2), a=1)
    for other in (SparkRow(a=1), SparkRow(a=1, b=2), SparkRow(1, 2), SparkRow("a", "b")):
        assert Row(a=1, b=Row(c=2)) != other


def test_rows_hash_as_their_values() -> None:
    assert len({Row(a=1), Row(a=1), Row(a=2), Row(b=1), Row(1), (1,)}) == 5
    assert {Row(a=1): "x"}[Row("a")(1)] == "x"


def test_a_change_of_an_item_says_what_to_do() -> None:
    row = Row(n=1)
    for item in (0, "n"):
        with pytest.raises(TypeError, match=r"row = row\.replace\(n=\.\.\.\)"):
            row[item] = 2
    with pytest.raises(AttributeError, match=r"row = row\.replace\(n=\.\.\.\)"):
        row.n = 2
    with pytest.raises(AttributeError, match=r"row = Row\("):
        row.m = 2
    for unnamed, item in ((Row(1), 0), (row, 1), (row, slice(1))):
        with pytest.raises(TypeError, match=r"row = Row\("):
            unnamed[item] = 2


def test_rows_become_dicts() -> None:
    row = Row(a=1, b=Row(c=[Row(d=2)], e={"f": Row(g=3)}))
    assert row.as_dict()["b"] == row.b
    assert row.as_dict(recursive=True) == {"a": 1, "b": {"c": [{"d": 2}], "e": {"f": {"g": 3}}}}


@pytest.mark.parametrize("row", [Row(), Row(1), Row(a=1, b=Row(c=2))], ids=repr)
def test_rows_are_pickled_and_copied(row: Row) -> None:
    for other in (pickle.loads(pickle.dumps(row)), copy.deepcopy(row), copy.copy(row)):
        assert other == row
        assert repr(other) == repr(row)
        assert type(other) is type(row)


@pytest.mark.parametrize("name", ["count", "index", "as_dict", "_position", "__len__", "a b", "FIELD_NAMES", ""])
def test_any_name_may_be_a_field(name: str) -> None:
    """Methods of tuple give way to fields; methods of Row do not, and such fields are read by name."""
    row = Row(**{"other": 1, name: 2})
    assert row[name] == 2
    assert len(row) == 2
    assert row.as_dict() == {"other": 1, name: 2}
    if name in {"count", "index"}:
        assert getattr(row, name) == 2


def test_garbage_collection_at_any_moment_leaves_a_class_its_fields() -> None:
    """Found as KeyError 'f0' once in 15,000 tests: a class was collected while its fields were read."""
    names = [tuple(f"collected_{length}_{position}" for position in range(length)) for length in range(1, 60)]
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        classes = [row_class(fields) for fields in names]
    finally:
        gc.set_threshold(*thresholds)
    assert [fields.FIELD_NAMES for fields in classes] == names


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)
    with pytest.raises(ValueError, match="unique"):
        row_class(("a", "a"))
