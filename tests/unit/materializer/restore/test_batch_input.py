"""The identity of what a batch reads, over files as Spark 4.3 writes them."""

from __future__ import annotations

import json

import pytest

from varvite.changelog.commit.base_decision import same_input
from varvite.materializer.restore.batch_input import input_identity, is_identified
from varvite.storage.errors import CorruptDataError


class Location:
    """A checkpoint location in memory: name → text."""

    def __init__(self, *offsets: tuple[str, ...], **logs: str) -> None:
        self.files = {f"offsets/{batch}": "\n".join(("v1", "{}", *lines)) for batch, lines in enumerate(offsets)}
        self.files |= {f"sources/{name}": text for name, text in logs.items()}

    def read(self, name: str) -> bytes | None:
        text = self.files.get(name)
        return None if text is None else text.encode()

    def list_names(self, name: str) -> list[str]:
        return [file.rpartition("/")[2] for file in self.files if file.startswith(f"{name}/")]

    def url(self, name: str) -> str:
        return name

    def add(self, number: int, *paths: str, source: str = "0", compact: bool = False) -> None:
        """One number of the log of a source of files; compact with what `paths` says of all numbers, as `n:path`."""
        pairs = [path.split(":") if compact else (str(number), path) for path in paths]
        lines = [json.dumps({"path": path, "timestamp": 1, "batchId": int(n)}) for n, path in pairs]
        self.files[f"sources/{source}/{number}{'.compact' if compact else ''}"] = "\n".join(("v1", *lines))


def identity(location: Location, batch: int) -> str:
    result = input_identity(location, batch)
    assert result is not None
    return result


def log(number: int) -> str:
    return json.dumps({"logOffset": number})


def files(*paths: str) -> Location:
    """Batches that read one file each."""
    location = Location(*[(log(number),) for number in range(len(paths))])
    for number, path in enumerate(paths):
        location.add(number, path)
    return location


def test_the_same_counter_over_other_files_is_other_input() -> None:
    one, other = files("a", "b", "c"), files("a", "x", "c")
    assert [same_input(identity(one, n), identity(other, n)) for n in range(3)] == [True, False, True]
    assert all(is_identified(one, n) for n in range(3))


def test_a_file_that_was_written_anew_is_other_input() -> None:
    one, other = files("a"), files("a")
    other.files["sources/0/0"] = other.files["sources/0/0"].replace('"timestamp": 1', '"timestamp": 2')
    assert not same_input(identity(one, 0), identity(other, 0))


def test_a_compact_file_gives_the_identity_of_each_of_its_numbers() -> None:
    plain, compact = files("a", "b", "c"), files("a", "b", "c")
    for number in (0, 1, 2):
        del compact.files[f"sources/0/{number}"]
    compact.add(2, "0:a", "1:b", "2:c", compact=True)
    assert [identity(plain, n) for n in range(3)] == [identity(compact, n) for n in range(3)]
    assert is_identified(compact, 0)


def test_a_batch_reads_all_numbers_since_the_batch_before() -> None:
    """As after a crash between the log of the source and the log of offsets, or after `varvite restore`."""
    location = Location((log(0),), (log(3),))
    for number, path in enumerate("abcd"):
        location.add(number, path)
    before = identity(location, 1)
    location.add(2, "x")
    assert not same_input(identity(location, 1), before)
    location.add(2, "c")
    assert identity(location, 1) == before


def test_a_batch_without_new_files_is_that_whatever_the_log_holds() -> None:
    one, other = Location((log(0), "7"), (log(0), "8")), Location((log(0), "7"), (log(0), "8"))
    one.add(0, "a")
    other.add(0, "b")
    assert same_input(identity(one, 1), identity(other, 1))
    assert not same_input(identity(one, 0), identity(other, 0))


def test_of_several_sources_each_counts() -> None:
    both = Location((log(0), log(0)))
    both.add(0, "a", source="0")
    both.add(0, "b", source="1")
    swapped = Location((log(0), log(0)))
    swapped.add(0, "b", source="0")
    swapped.add(0, "a", source="1")
    assert not same_input(identity(both, 0), identity(swapped, 0))


def test_named_sources_may_change_places() -> None:
    lines = [f"orders:{log(0)}", "beat:17"]
    locations = [Location(), Location()]
    for location, order in zip(locations, (lines, lines[::-1]), strict=True):
        location.files["offsets/0"] = "\n".join(("v2", "{}", *order))
        location.add(0, "a", source="orders")
        location.files["sources/beat/0"] = "v1\n1795785349251"
    assert identity(locations[0], 0) == identity(locations[1], 0)
    assert is_identified(locations[0], 0)


def test_a_log_that_spark_has_cleaned_leaves_the_offsets() -> None:
    whole, cleaned = files("a", "b"), files("a", "b")
    del cleaned.files["sources/0/1"]
    assert same_input(identity(whole, 1), identity(cleaned, 1))
    assert not is_identified(cleaned, 1)
    other = Location((log(0),), (log(2),))
    assert not same_input(identity(whole, 1), identity(other, 1))


@pytest.mark.parametrize(
    ("offset", "kept", "expected"),
    [
        pytest.param('{"orders":{"0":17}}', {"0/0": "v1\n{}"}, True, id="Kafka"),
        pytest.param('{"offset":3}', {}, True, id="a data source in Python"),
        pytest.param("17", {"0/0": "v1\n1795785349251"}, True, id="rate, which has its first moment"),
        pytest.param("17", {}, False, id="a socket, or a stream in memory"),
        pytest.param('{"seqNum":9}', {"0/metadata": "", "0/rocksdb": ""}, False, id="a counter over a list of its own"),
        pytest.param("-", {}, True, id="no rows yet"),
    ],
)
def test_sources_whose_offset_does_not_tell_the_rows(offset: str, kept: dict[str, str], expected: bool) -> None:
    location = Location((offset,), **kept)
    assert is_identified(location, 0) is expected
    assert "." not in identity(location, 0)


def test_a_batch_that_is_not_planned_has_no_identity() -> None:
    assert input_identity(files("a"), 1) is None


@pytest.mark.parametrize("text", ["", "v1\n{", "v9\n", '{"path":"a"}', 'v1\n{"path":"a"}'])
def test_a_torn_log_of_a_source_is_corrupt_and_named(text: str) -> None:
    location = files("a")
    location.files["sources/0/0"] = text
    with pytest.raises(CorruptDataError) as caught:
        input_identity(location, 0)
    assert caught.value.context["object_name"] == "sources/0/0"
