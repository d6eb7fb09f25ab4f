"""Keys and values become typed options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.declaration import ConfigOption, check_options, options_of
from varvite.storage.options.kinds import BOOLEAN, DURATION, INTEGER, STRING, choice, number_above, word_or_name
from varvite.storage.options.table import OptionTable, value_of, values_for

WAIT = ConfigOption(
    key="queue.wait",
    type=DURATION,
    default=1_000,
    at_least=10,
    at_most=60_000,
    deprecated_keys=("queue.delay",),
    command_name="--wait",
    description="Time that a `request` waits.",
)
LIMIT = ConfigOption(key="queue.limit", type=INTEGER, description="Requests.", unset="no limit")
TABLE = OptionTable((WAIT, LIMIT))


@dataclass(frozen=True)
class Queue:
    wait_ms: int = WAIT.field()
    limit: int | None = LIMIT.field()
    plain: int = 7
    log: bool = ConfigOption(key="queue.log", type=BOOLEAN, description="Log.").field(default=True)


def test_a_field_has_default_and_option() -> None:
    assert Queue() == Queue(1_000, None, 7, log=True)
    assert list(options_of(Queue)) == ["wait_ms", "limit", "log"]
    assert options_of(Queue)["wait_ms"] is WAIT


@pytest.mark.parametrize("wrong", [{"wait_ms": 9}, {"wait_ms": 60_001}, {"limit": "many"}, {"log": "perhaps"}])
def test_a_field_is_checked_by_its_option(wrong: dict[str, object]) -> None:
    [field] = wrong
    with pytest.raises(InvalidRequestError, match=options_of(Queue)[field].key):
        check_options(dataclasses.replace(Queue(), **wrong))  # type: ignore[arg-type]
    check_options(Queue(wait_ms=10, limit=None))


def test_the_strongest_level_that_sets_an_option_wins() -> None:
    strong, weak = TABLE.read("strong", {"queue.limit": 3}), TABLE.read("weak", {"queue.limit": 4, "queue.wait": "2 s"})
    assert values_for(Queue, [strong, weak]) == {"wait_ms": 2_000, "limit": 3}
    assert value_of(WAIT, [strong]) == 1_000


def test_the_current_key_wins_over_an_older_one(caplog: pytest.LogCaptureFixture) -> None:
    assert TABLE.read("code", {"queue.delay": "1 min"}).values == {"queue.wait": 60_000}
    assert "option queue.delay is deprecated; use queue.wait" in caplog.text
    assert TABLE.read("code", {"queue.wait": "5 s", "queue.delay": "1 min"}).values == {"queue.wait": 5_000}
    assert "queue.delay" in TABLE
    assert "queue" not in TABLE


def test_only_the_values_that_are_asked_for_are_read() -> None:
    assert TABLE.read("code", {"queue.wait": "nonsense", "queue.limit": "2"}, only=[LIMIT]).values == {"queue.limit": 2}
    with pytest.raises(InvalidRequestError, match=r"did you mean x\.queue\.limit\?"):
        TABLE.read("code", {"queue.limi": "2"}, "x.", only=[WAIT])


def test_the_help_has_the_default_and_no_markdown() -> None:
    assert WAIT.help_text == "Time that a request waits. [default: 1 s]"
    assert LIMIT.help_text == "Requests. [default: no limit]"
    assert (WAIT.range_text, LIMIT.range_text) == ("10 ms to 1 min", "")


def test_kinds_say_what_they_take() -> None:
    backend = word_or_name("hashmap", "rocksdb", what="a factory")
    assert backend.name == "`hashmap`, `rocksdb` or `module:qualified.name`"
    assert [choice(*words).name for words in ("a", "ab", "abc")] == ["`a`", "`a` or `b`", "`a`, `b` or `c`"]
    assert [backend.read(text) for text in ("RocksDB", " my.module:Store ")] == ["rocksdb", "my.module:Store"]
    for kind, wrong, text in (
        (backend, "forst", "use hashmap or rocksdb, or module:qualified.name of a factory"),
        (choice("a", "b"), "c", "use a or b"),
        (number_above(1), "1", "finite number above 1"),
        (number_above(1), float("inf"), "finite"),
        (number_above(0), True, "above 0"),
        (STRING, " ", "empty"),
    ):
        with pytest.raises(InvalidRequestError, match=text):
            kind.read(wrong)
